//! The table that is printed at the end.

use std::{fmt, time::Duration};

use crate::measured::{Measured, Named};

/// Rows as they are added, and as they are printed.
#[derive(Default)]
pub struct Table {
    lines: Vec<String>,
}

impl Table {
    pub fn add(&mut self, row: Row) {
        self.lines(&row.to_string());
    }

    /// Adds rows that another program has measured.
    pub fn lines(&mut self, rows: &str) {
        eprintln!("{}", rows.trim_end());
        self.lines.extend(rows.lines().map(str::to_owned));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| work | tower-throttle | beside | ratio | p50s | p99s | target | met |\n\
             |---|--:|--:|--:|--:|--:|---|---|"
        )?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A row of the table: tower-throttle's figure, and the one beside it.
pub struct Row {
    work: String,
    ours: (String, f64),
    beside: (String, f64),
    times: Option<(Measured, Measured)>,
    targets: Vec<(String, bool)>,
}

impl Row {
    /// Adds a row of requests a second.
    pub fn speed(work: impl Into<String>, ours: Measured, (name, beside): Named) -> Self {
        let per_s = |measured: Measured| {
            let text = format!("{}/s", short(measured.ops_per_s));
            (text, measured.ops_per_s)
        };
        let row = Self::new(work, per_s(ours), name, per_s(beside));
        row.times(ours, beside)
    }

    /// Adds a row in this unit, of which less is better.
    pub fn cost(
        work: impl Into<String>,
        unit: &str,
        ours: f64,
        (name, beside): (&str, f64),
    ) -> Self {
        let figure = |figure: f64| (format!("{}{unit}", short(figure)), figure);
        Self::new(work, figure(ours), name, figure(beside))
    }

    fn new(
        work: impl Into<String>,
        ours: (String, f64),
        name: &str,
        beside: (String, f64),
    ) -> Self {
        Self {
            work: work.into(),
            ours,
            beside: (format!("{name}: {}", beside.0), beside.1),
            times: None,
            targets: Vec::new(),
        }
    }

    /// Adds how long requests took.
    pub fn times(self, ours: Measured, beside: Measured) -> Self {
        Self {
            times: Some((ours, beside)),
            ..self
        }
    }

    pub fn at_least(self, times: f64) -> Self {
        let is_met = self.ratio() >= times;
        self.target(format!(">= {times}x"), is_met)
    }

    pub fn at_most(self, times: f64) -> Self {
        let is_met = self.ratio() <= times;
        self.target(format!("<= {times}x"), is_met)
    }

    pub fn ours_at_most(self, figure: f64, unit: &str) -> Self {
        let is_met = self.ours.1 <= figure;
        self.target(format!("<= {}{unit}", short(figure)), is_met)
    }

    pub fn ours_below(self, figure: f64) -> Self {
        let is_met = self.ours.1 < figure;
        self.target(format!("< {figure}"), is_met)
    }

    pub fn p50_at_most(self, times: f64) -> Self {
        let (ours, beside) = self.times.expect("times");
        let is_met = ours.p50 <= beside.p50.mul_f64(times);
        self.target(format!("p50 <= {times}x"), is_met)
    }

    pub fn p50_lower(self) -> Self {
        let (ours, beside) = self.times.expect("times");
        self.target("p50 lower".to_owned(), ours.p50 < beside.p50)
    }

    pub fn p99_lower(self) -> Self {
        let (ours, beside) = self.times.expect("times");
        self.target("p99 lower".to_owned(), ours.p99 < beside.p99)
    }

    fn target(mut self, text: String, is_met: bool) -> Self {
        self.targets.push((text, is_met));
        self
    }

    fn ratio(&self) -> f64 {
        self.ours.1 / self.beside.1
    }

    fn met(&self) -> String {
        let missed = self.targets.iter().filter(|(_, is_met)| !is_met);
        let missed: Vec<_> = missed.map(|(text, _)| &**text).collect();
        match (self.targets.len(), missed.len()) {
            (0, _) => String::new(),
            (_, 0) => "yes".to_owned(),
            (1, _) => "**no**".to_owned(),
            _ => format!("**no**: {}", missed.join(", ")),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |of: fn(&Measured) -> Duration| {
            let times = self.times.as_ref();
            let text = times.map(|(ours, beside)| format!("{} / {}", us(of(ours)), us(of(beside))));
            text.unwrap_or_default()
        };
        let targets: Vec<_> = self.targets.iter().map(|(text, _)| &**text).collect();
        write!(
            f,
            "| {} | {} | {} | {:.2} | {} | {} | {} | {} |",
            self.work,
            self.ours.0,
            self.beside.0,
            self.ratio(),
            pair(|measured| measured.p50),
            pair(|measured| measured.p99),
            targets.join(", "),
            self.met()
        )
    }
}

fn us(time: Duration) -> String {
    format!("{} µs", short(time.as_nanos() as f64 / 1_000.0))
}

/// Shows at most three digits, because runs differ by more than a fourth would show.
fn short(number: f64) -> String {
    if number >= 10.0 || number == 0.0 {
        let place = 10_f64.powi((number.max(1.0).log10() as i32 - 2).max(0));
        grouped(((number / place).round() * place) as u64)
    } else if number.abs() >= 0.1 {
        format!("{number:.2}")
    } else {
        let text = format!("{number:.4}");
        text.trim_end_matches('0').to_owned()
    }
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
