//! Measures tower-throttle beside its rivals, in turns, in one run, and prints
//! one table. `--only NAME` measures a part of it.

use std::{env, process::exit};

use tower_throttle_rivals::{
    cargo, machine, measured::ROUNDS, rows::SECTIONS, server, table::Table,
};

/// A program of its own measures it, because counting allocations slows everything down.
const FOOTPRINT: &str = "footprint";

fn main() {
    let only = only(env::args().skip(1));
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let heading = format!(
        "{}, {} cores, load before {}, Redis {}, medians of {ROUNDS} rounds",
        machine::cpu_model(),
        machine::cores(),
        machine::load(),
        server::version(),
    );
    // Before anything is timed, because it compiles.
    let footprint = is_wanted(FOOTPRINT).then(|| cargo::run(FOOTPRINT));
    let mut table = Table::default();
    for (name, rows) in SECTIONS {
        if is_wanted(name) {
            rows(&mut table);
        }
    }
    table.lines(&footprint.unwrap_or_default());
    println!("{heading}\n\n{table}");
}

/// Returns the names behind each `--only`.
fn only(mut words: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(word) = words.next() {
        let known = SECTIONS.map(|(name, _)| name);
        let name = words
            .next()
            .filter(|_| word == "--only")
            .unwrap_or_default();
        if name != FOOTPRINT && !known.contains(&&*name) {
            eprintln!(
                "--only NAME, where NAME is one of {}, {FOOTPRINT}",
                known.join(", ")
            );
            exit(2);
        }
        names.push(name);
    }
    names
}
