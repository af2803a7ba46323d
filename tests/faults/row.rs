//! One row of the matrix: how much work it does, its figures, and its claims on time.

use std::{fmt::Display, io::Write};

use crate::machine::Control;
use crate::prelude::*;

/// `scripts/faults` sets it to `short`, or to `long` for as much as the fault matrix asks.
/// Without it, rows are short and judge no claim on time.
const FORM: &str = "TT_FAULTS";
/// A file to which each row adds a line.
const FIGURES: &str = "TT_FAULTS_FIGURES";

pub(crate) fn judges_time() -> bool {
    std::env::var_os(FORM).is_some()
}

pub(crate) fn is_long() -> bool {
    std::env::var(FORM).is_ok_and(|form| form == "long")
}

pub(crate) fn or_long<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// I2: of all requests, at most this share may take longer.
const IN_TIME: [(Duration, f64); 2] = [
    (Duration::from_millis(60), 0.001),
    (Duration::from_millis(100), 0.0),
];
/// If timers are late by more than one part in this many of a bound, a claim on it cannot be
/// judged.
const MARGIN: u32 = 10;

#[derive(Debug, PartialEq)]
enum Verdict {
    Kept,
    Inconclusive,
    Broken,
}

#[derive(Debug)]
pub(crate) struct Row {
    name: String,
    figures: Vec<String>,
    control: Option<Arc<Control>>,
    is_inconclusive: bool,
}

impl Row {
    pub(crate) fn start(name: impl Into<String>) -> Self {
        let control = judges_time().then(|| Arc::new(Control::start()));
        Self::with_control(name.into(), control)
    }

    /// Returns a row for a part of this one.
    pub(crate) fn part(&self, name: &str) -> Self {
        Self::with_control(format!("{} {name}", self.name), self.control.clone())
    }

    const fn with_control(name: String, control: Option<Arc<Control>>) -> Self {
        Self {
            name,
            figures: Vec::new(),
            control,
            is_inconclusive: false,
        }
    }

    pub(crate) fn figure(&mut self, name: &str, value: impl Display) {
        self.figures.push(format!("{name} {value}"));
    }

    /// Claims that at most the share `allowed` is later than `bound`, where the share `late` is.
    /// Only the fault matrix judges it, and only if the machine's own timers were not late.
    pub(crate) fn claim(&mut self, claim: &str, bound: Duration, allowed: f64, late: f64) {
        let Some(control) = &self.control else {
            return;
        };
        let lost = control.share_lost(bound / MARGIN);
        match verdict(allowed, late, lost) {
            Verdict::Kept => {}
            Verdict::Inconclusive => self.is_inconclusive = true,
            Verdict::Broken => panic!(
                "{}: {claim}: {late:.4} are later than {bound:?}, of which {allowed} may be, and \
                 timers were {:?} late; {:?}",
                self.name,
                control.latest(),
                self.figures
            ),
        }
    }

    /// Tells how long something took, and claims that it took at most `bound`.
    pub(crate) fn took(&mut self, name: &str, took: Duration, bound: Duration) {
        self.figure(name, ms(took));
        self.claim(name, bound, 0.0, f64::from(u8::from(took > bound)));
    }

    /// I2: each request is answered, and in time.
    pub(crate) fn answered(&mut self, ledger: &[Entry]) {
        let times = checker::answered(ledger).expect("I2");
        self.figure("p99.9", ms(times.of_share(0.999)));
        self.figure("longest", ms(times.of_share(1.0)));
        for (bound, share) in IN_TIME {
            self.claim("I2", bound, share, times.share_above(bound));
        }
    }

    /// Asserts that the store decided each request. In long runs, [`rig::patience`] is short, and
    /// this share may miss it.
    pub(crate) fn decided_by_store(&mut self, ledger: &[Entry], allowed: f64) {
        let failed = rig::count(ledger, |outcome| !outcome.is_by_store());
        if !is_long() {
            assert_eq!(failed, 0, "{:?}", checker::outcomes(ledger));
        }
        self.failed(failed, ledger.len(), allowed, rig::CALL);
    }

    /// Claims that at most this share of the requests had no reply before the timeout, of which
    /// replies usually leave so much.
    pub(crate) fn failed(&mut self, failed: u64, requests: usize, allowed: f64, left: Duration) {
        assert!(requests > 0, "there was load");
        self.figure("failed", format!("{failed} of {requests}"));
        self.claim("failed", left, allowed, failed as f64 / requests as f64);
    }

    /// Prints what the row found, and adds it to the file of figures if there is one.
    pub(crate) fn tell(self, runs: u64) {
        let inconclusive = match &self.control {
            Some(control) if self.is_inconclusive => {
                format!("inconclusive (timers {} late): ", ms(control.latest()))
            }
            _ => String::new(),
        };
        let figures = self.figures.join(", ");
        let line = format!("{} | {runs} | {inconclusive}{figures}\n", self.name);
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
}

/// Judges a claim in a run in which the machine's timers lost this share of the time.
fn verdict(allowed: f64, late: f64, lost: f64) -> Verdict {
    let excess = late - allowed;
    if excess <= 0.0 {
        Verdict::Kept
    } else if lost > allowed.min(excess) {
        Verdict::Inconclusive
    } else {
        Verdict::Broken
    }
}

pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
