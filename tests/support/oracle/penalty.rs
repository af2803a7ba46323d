//! Penalties: each strike of the window, and the bans.

use super::spec::Spec;

/// What is known of a caller with strikes or bans.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// When the last ban ends or has ended; 0 if there was none.
    until_ms: i128,
    /// The bans that count.
    pub bans: u32,
    ends_ms: i128,
    strikes: Vec<i128>,
}

struct Numbers {
    after: i128,
    window_ms: i128,
    first_ms: i128,
    longest_ms: i128,
    forgiven_ms: i128,
    prolongs: bool,
}

fn numbers(spec: &Spec) -> Numbers {
    let Spec::Penalty {
        after,
        window_ms,
        first_ms,
        longest_ms,
        forgiven_ms,
        prolongs,
    } = *spec
    else {
        panic!("no penalty");
    };
    // Without longer bans there is nothing to forgive, and the default is the longest ban.
    let forgiven_ms = match (longest_ms, forgiven_ms) {
        (None, _) => 0,
        (Some(longest_ms), None) => longest_ms,
        (Some(_), Some(forgiven_ms)) => forgiven_ms,
    };
    Numbers {
        after: after.into(),
        window_ms: window_ms.into(),
        first_ms: first_ms.into(),
        longest_ms: longest_ms.unwrap_or(first_ms).into(),
        forgiven_ms: forgiven_ms.into(),
        prolongs,
    }
}

/// The year 2286.
const LAST_MS: i128 = 9_999_999_999_999;

impl Numbers {
    /// Doubles the first ban step by step.
    fn length_ms(&self, number: u32) -> i128 {
        let mut length_ms = self.first_ms;
        for _ in 1..number {
            length_ms = (2 * length_ms).min(self.longest_ms);
        }
        length_ms
    }
}

impl Record {
    /// `prolongs`: whether it is a request or a strike.
    pub fn open(spec: &Spec, stored: Option<&Self>, prolongs: bool, now_us: i128) -> (Self, bool) {
        let (numbers, now_ms) = (numbers(spec), now_us / 1_000);
        let Some(stored) = stored else {
            return (Self::default(), false);
        };
        let mut known = stored.clone();
        if known.until_ms > now_ms {
            (known.ends_ms, known.strikes) = (0, Vec::new());
            let again_ms = (now_ms + numbers.length_ms(known.bans)).min(LAST_MS);
            let is_later = prolongs && numbers.prolongs && again_ms > known.until_ms;
            if is_later {
                known.until_ms = again_ms;
            }
            return (known, is_later);
        }
        if known.until_ms + numbers.forgiven_ms <= now_ms {
            known.bans = 0;
        }
        if known.ends_ms <= now_ms {
            (known.ends_ms, known.strikes) = (0, Vec::new());
        }
        let latest_ms = now_ms + numbers.window_ms;
        known.ends_ms = known.ends_ms.min(latest_ms);
        known.strikes.truncate((numbers.after - 1) as usize);
        (known, false)
    }

    pub fn is_banned(&self, at_us: i128) -> bool {
        self.until_ms * 1_000 > at_us
    }

    /// A ban is more than all strikes.
    pub fn level(&self, spec: &Spec, at_us: i128) -> i128 {
        if self.is_banned(at_us) {
            numbers(spec).after + 1
        } else if self.ends_ms * 1_000 > at_us {
            self.strikes.len() as i128
        } else {
            0
        }
    }

    /// Returns how many strikes counted.
    pub fn strike(&mut self, spec: &Spec, strikes: u64, now_us: i128) -> u64 {
        let (numbers, now_ms) = (numbers(spec), now_us / 1_000);
        let mut counted = 0;
        while counted < strikes && !self.is_banned(now_us) {
            if self.strikes.is_empty() {
                self.ends_ms = (now_ms + numbers.window_ms).min(LAST_MS);
            }
            if self.bans == 0 {
                // Nothing is to be forgiven, whatever the clock does.
                self.until_ms = 0;
            }
            self.strikes.push(now_us);
            counted += 1;
            if self.strikes.len() as i128 >= numbers.after {
                // More do not make the longest ban longer.
                self.bans = (self.bans + 1).min(63);
                self.until_ms = (now_ms + numbers.length_ms(self.bans)).min(LAST_MS);
                (self.ends_ms, self.strikes) = (0, Vec::new());
            }
        }
        counted
    }

    /// Returns whether it is longer than a ban that the caller has.
    pub fn ban(&mut self, ban_ms: u64, now_us: i128) -> bool {
        let until_ms = (now_us / 1_000 + i128::from(ban_ms)).min(LAST_MS);
        let is_longer = !self.is_banned(now_us) || until_ms > self.until_ms;
        if is_longer {
            (self.ends_ms, self.strikes) = (0, Vec::new());
            self.until_ms = until_ms;
        }
        is_longer
    }

    pub fn forgotten_at_us(&self, spec: &Spec) -> i128 {
        let remembered_ms = match self.bans {
            0 => 0,
            _ => numbers(spec).forgiven_ms,
        };
        (self.until_ms + remembered_ms).max(self.ends_ms) * 1_000
    }
}
