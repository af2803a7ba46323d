//! How much work a run does, and its figures.

use std::{io::Write, time::Duration};

/// Set to `long`, all rows run for as long as the fault matrix asks.
const HOW_LONG: &str = "TT_FAULTS";
/// A file to which each row adds a line.
const FIGURES: &str = "TT_FAULTS_FIGURES";

pub(crate) fn is_long() -> bool {
    std::env::var(HOW_LONG).is_ok_and(|value| value == "long")
}

pub(crate) fn or_long<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Prints what a row found, and adds it to the file of figures if there is one.
pub(crate) fn tell(row: &str, runs: u64, figures: &[(&str, String)]) {
    let figures = figures
        .iter()
        .map(|(name, value)| format!("{name} {value}"));
    let line = format!(
        "{row} | {runs} | {}\n",
        figures.collect::<Vec<_>>().join(", ")
    );
    print!("{line}");
    if let Some(path) = std::env::var_os(FIGURES) {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let mut file = file.expect("the file of figures");
        file.write_all(line.as_bytes()).expect("room in it");
    }
}

pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
