//! Ledgers in files, for other processes.

use std::{fs::OpenOptions, io::Write, path::Path};

use super::Entry;

/// Writes one line for each entry.
pub(crate) fn write(path: &Path, ledger: &[Entry]) {
    std::fs::write(path, lines(ledger)).expect("a ledger is written");
}

/// Appends entries to a file.
pub(crate) fn append(path: &Path, ledger: &[Entry]) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(lines(ledger).as_bytes()));
    written.expect("a ledger is written");
}

fn lines(ledger: &[Entry]) -> String {
    let mut text = String::new();
    for entry in ledger {
        let remaining = entry
            .remaining
            .map_or("-".to_owned(), |left| left.to_string());
        text += &format!(
            "{} {} {} {} {} {} {} {remaining}\n",
            entry.process,
            entry.id,
            entry.key,
            entry.cost,
            entry.outcome,
            entry.sent_us,
            entry.answered_us,
        );
    }
    text
}

pub(crate) fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.lines()
        .map(|line| entry(line).ok_or_else(|| format!("not an entry: {line}")))
        .collect()
}

fn entry(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split(' ').collect();
    let [process, id, key, cost, outcome, sent, answered, remaining] = words[..] else {
        return None;
    };
    Some(Entry {
        process: process.parse().ok()?,
        id: id.parse().ok()?,
        key: key.parse().ok()?,
        cost: cost.parse().ok()?,
        outcome: outcome.parse().ok()?,
        sent_us: sent.parse().ok()?,
        answered_us: answered.parse().ok()?,
        remaining: match remaining {
            "-" => None,
            left => Some(left.parse().ok()?),
        },
    })
}
