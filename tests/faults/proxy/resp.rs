//! Reads what clients send as it passes through.

use std::time::Instant;

use crate::{prelude::*, support::fake};

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
        let (mut seen, mut rest) = (Vec::new(), &self.0[..]);
        let mut left = rest.len();
        while let Ok(words) = fake::read_command(&mut rest) {
            seen.push(sort(&words));
            left = rest.len();
        }
        self.0.drain(..self.0.len() - left);
        seen
    }
}

fn sort(words: &[Vec<u8>]) -> Seen {
    match fake::is_script(words) {
        true => Seen::Script {
            by_text: words[0].eq_ignore_ascii_case(b"EVAL"),
            nonce: fake::nonce(words) as i64,
        },
        false => Seen::Other,
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
