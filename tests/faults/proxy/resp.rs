//! Reads what clients send as it passes through.

use std::time::Instant;

use crate::prelude::*;

/// A command, as far as the proxy needs it.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    /// By its name or by its text, with the nonce of the call.
    Script {
        by_text: bool,
        nonce: i64,
    },
    Other,
}

/// Splits a stream of bytes into commands.
#[derive(Debug, Default)]
pub(super) struct Commands(Vec<u8>);

impl Commands {
    /// Returns the commands that are complete with these bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Seen> {
        self.0.extend_from_slice(bytes);
        let mut seen = Vec::new();
        let mut from = 0;
        while let Some((words, length)) = command(&self.0[from..]) {
            seen.push(sort(&words));
            from += length;
        }
        self.0.drain(..from);
        seen
    }
}

/// Returns the words of the first command, and its length; `None` if it is incomplete.
fn command(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = number(bytes, 0)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, start) = number(bytes, at)?;
        words.push(bytes.get(start..start + length)?);
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

/// Returns the number in the line that starts at `at`, after its sign, and the end of the line.
fn number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let digits = std::str::from_utf8(line.get(1..end)?).ok()?;
    Some((digits.parse().ok()?, at + end + 2))
}

fn sort(words: &[&[u8]]) -> Seen {
    let is = |name: &str| {
        words
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let by_text = is("EVAL");
    // The last argument is a list of numbers, of which the nonce is the first.
    match words.last().and_then(|word| word.first_chunk()) {
        Some(nonce) if by_text || is("EVALSHA") => Seen::Script {
            by_text,
            nonce: f64::from_le_bytes(*nonce) as i64,
        },
        _ => Seen::Other,
    }
}

/// What was sent on all connections together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    /// How often each call was sent: by name, and by text.
    calls: HashMap<i64, (u32, u32)>,
    scripts: Vec<Instant>,
    pub(crate) commands: u64,
    /// "No such script" answers, each of which allows one call to be sent by text.
    pub(crate) unknown_scripts: u64,
}

impl Sent {
    pub(super) fn add(&mut self, seen: &Seen) {
        self.commands += 1;
        if let Seen::Script { by_text, nonce } = seen {
            self.scripts.push(Instant::now());
            let times = self.calls.entry(*nonce).or_default();
            if *by_text {
                times.1 += 1;
            } else {
                times.0 += 1;
            }
        }
    }

    /// Returns the number of script calls, each counted once.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns how many calls were sent more often than they may be: once, and once more for
    /// each answer that the script is unknown.
    pub(crate) fn sent_again(&self) -> u64 {
        let sent: u64 = self
            .calls
            .values()
            .map(|(name, text)| u64::from(name + text))
            .sum();
        (sent - self.calls.len() as u64).saturating_sub(self.unknown_scripts)
    }

    /// Returns the number of calls by text, each of which loads a script.
    pub(crate) fn loads(&self) -> u64 {
        self.calls.values().map(|times| u64::from(times.1)).sum()
    }

    /// Returns the most script calls in any span of this length between these instants.
    pub(crate) fn most_scripts_in(&self, stretch: Duration, from: Instant, to: Instant) -> usize {
        let times = self.scripts.iter();
        let times: Vec<_> = times.filter(|time| (from..to).contains(time)).collect();
        let mut first = 0;
        let counts = times.iter().enumerate().map(|(last, time)| {
            while time.duration_since(*times[first]) >= stretch {
                first += 1;
            }
            last + 1 - first
        });
        counts.max().unwrap_or(0)
    }
}
