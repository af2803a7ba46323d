//! The sliding window and the sliding log: lists of what was admitted.

use super::{
    spec::{Spec, up},
    windows::End,
};

/// Each use, with the end of the clock's window that counts it.
#[derive(Clone, Debug)]
pub struct Sliding {
    ends_ms: i128,
    window_ms: i128,
    uses: Vec<(i128, i128)>,
    /// What a version with longer windows wrote, until these take.
    of_longer: Option<(End, Vec<(i128, i128)>)>,
}

impl Sliding {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let Spec::Sliding { window_ms, .. } = *spec else {
            panic!("not a sliding window");
        };
        let window_ms = i128::from(window_ms);
        let ends_ms = clock_end_ms(window_ms, now_us);
        let mut uses = Vec::new();
        let mut is_ahead = false;
        let mut of_longer = None;
        if let Some(stored) = stored {
            let written = stored.of_longer.clone();
            let own = || (End::at(stored.ends_ms), stored.uses.clone());
            let (end, written) = written.unwrap_or_else(own);
            let latest = |at_ms: i128| at_ms - at_ms % window_ms + window_ms;
            let (newest_ms, noted) = end.within(now_us / 1_000, latest);
            let (starts_ms, before_ms) = (ends_ms - window_ms, ends_ms - 2 * window_ms);
            for (end_ms, units) in &written {
                let is_newest = *end_ms == end.ends_ms;
                // The position of the newest window determines both counts.
                if newest_ms > starts_ms {
                    let end_ms = if is_newest { ends_ms } else { starts_ms };
                    uses.push((end_ms, *units));
                } else if newest_ms > before_ms && is_newest {
                    uses.push((starts_ms, *units));
                }
            }
            is_ahead = noted.is_some();
            of_longer = noted.map(|end| (end, written));
        }
        let mut known = Self {
            ends_ms,
            window_ms,
            uses,
            of_longer,
        };
        // A longer window can count less exactly.
        let counted = [ends_ms - window_ms, ends_ms]
            .map(|end_ms| (end_ms, known.counted(end_ms).min(spec.highest())));
        known.uses = counted.to_vec();
        (known, is_ahead)
    }

    fn counted(&self, window_end_ms: i128) -> i128 {
        let inside = self.uses.iter().filter(|(end, _)| *end == window_end_ms);
        inside.map(|(_, units)| units).sum()
    }

    pub fn level(&self, at_us: i128) -> i128 {
        let ends_ms = clock_end_ms(self.window_ms, at_us);
        let left_ms = ends_ms - at_us / 1_000;
        let before = self.counted(ends_ms - self.window_ms);
        self.counted(ends_ms) + up(before * left_ms, self.window_ms)
    }

    pub fn take(&mut self, level: i128) {
        self.of_longer = None;
        self.uses.push((self.ends_ms, level));
    }

    /// Refunds from the present window only.
    pub fn give(&mut self, level: i128) -> i128 {
        let given = level.min(self.counted(self.ends_ms));
        if given == 0 {
            return 0;
        }
        self.of_longer = None;
        let kept = self.counted(self.ends_ms) - given;
        self.uses.retain(|(end, _)| *end != self.ends_ms);
        if kept > 0 {
            self.uses.push((self.ends_ms, kept));
        }
        given
    }

    pub fn forgotten_at_us(&self) -> i128 {
        let (ends_ms, is_used) = match &self.of_longer {
            Some((end, uses)) => {
                let mut newest = uses.iter().filter(|(end_ms, _)| *end_ms == end.ends_ms);
                (end.ends_ms, newest.any(|(_, units)| *units > 0))
            }
            None => (self.ends_ms, self.counted(self.ends_ms) > 0),
        };
        (ends_ms + if is_used { self.window_ms } else { 0 }) * 1_000
    }
}

fn clock_end_ms(window_ms: i128, at_us: i128) -> i128 {
    let now_ms = at_us / 1_000;
    now_ms - now_ms % window_ms + window_ms
}

/// How many units were taken at each instant.
#[derive(Clone, Debug)]
pub struct Log {
    window_us: i128,
    /// Up to the limit, each instant is an entry of its own.
    most: usize,
    taken: Vec<(i128, i128)>,
}

impl Log {
    pub fn open(limit: u64, window_ms: u64, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let mut known = Self {
            window_us: i128::from(window_ms) * 1_000,
            most: limit.max(1) as usize,
            taken: Vec::new(),
        };
        let mut is_ahead = false;
        for &(at_us, units) in stored.iter().flat_map(|log| &log.taken) {
            if at_us + known.window_us > now_us {
                is_ahead |= at_us > now_us;
                known.add(at_us.min(now_us), units);
            }
        }
        (known, is_ahead)
    }

    fn add(&mut self, at_us: i128, units: i128) {
        match self.taken.last_mut() {
            Some((last_us, taken)) if *last_us == at_us => *taken += units,
            _ => self.taken.push((at_us, units)),
        }
    }

    pub fn level(&self, at_us: i128) -> i128 {
        let counts = |(taken_us, _): &&(i128, i128)| taken_us + self.window_us > at_us;
        self.taken
            .iter()
            .filter(counts)
            .map(|(_, units)| units)
            .sum()
    }

    pub fn take(&mut self, level: i128, now_us: i128) {
        if self.taken.len() >= self.most {
            // The last part of a growing debt counts from now.
            let last = self.taken.last_mut().expect("an instant");
            last.0 = now_us;
        }
        self.add(now_us, level);
    }

    /// Refunds the newest units.
    pub fn give(&mut self, level: i128) -> i128 {
        let mut given = 0;
        while given < level {
            let Some((at_us, units)) = self.taken.pop() else {
                break;
            };
            let part = units.min(level - given);
            given += part;
            if part < units {
                self.taken.push((at_us, units - part));
            }
        }
        given
    }

    pub fn forgotten_at_us(&self) -> i128 {
        let newest = self.taken.last();
        newest.map_or(0, |(at_us, _)| at_us + self.window_us)
    }
}

/// Permits in flight: those that one process holds, and what it stated last.
#[derive(Clone, Debug)]
pub struct Permits {
    lifetime_ms: i128,
    /// The held permits, by their numbers.
    held: Vec<(u64, i128)>,
    /// The shortest lifetime under which the process holds any permit.
    pub shortest_ms: i128,
    /// What the store knows: how many, and until when.
    stated: Option<(i128, i128)>,
}

impl Permits {
    pub fn open(spec: &Spec, stored: Option<&Self>, now_us: i128) -> (Self, bool) {
        let Spec::Concurrency { lifetime_ms, .. } = *spec else {
            panic!("not permits");
        };
        let (now_ms, lifetime_ms) = (now_us / 1_000, i128::from(lifetime_ms));
        let mut permits = stored.cloned().unwrap_or(Self {
            lifetime_ms,
            held: Vec::new(),
            shortest_ms: lifetime_ms,
            stated: None,
        });
        permits.lifetime_ms = lifetime_ms;
        let mut is_news = false;
        if let Some((_, ends_ms)) = &mut permits.stated {
            is_news = *ends_ms > now_ms + lifetime_ms;
            *ends_ms = (*ends_ms).min(now_ms + lifetime_ms);
        }
        permits.stated = permits.stated.filter(|(_, ends_ms)| *ends_ms > now_ms);
        (permits, is_news)
    }

    fn units(&self) -> i128 {
        self.held.iter().map(|(_, units)| units).sum()
    }

    /// States how many the process holds. Returns whether that changes what the store knows.
    pub fn state(&mut self, now_us: i128) -> bool {
        self.shortest_ms = match self.held.is_empty() {
            true => self.lifetime_ms,
            false => self.shortest_ms.min(self.lifetime_ms),
        };
        let is_news = self.stated.map_or(0, |(units, _)| units) != self.units();
        if is_news {
            self.stated = Some((self.units(), now_us / 1_000 + self.lifetime_ms));
        }
        is_news
    }

    /// Returns the state as the process itself sees it, which renews its permits.
    pub fn of_the_living(&self, now_us: i128) -> Self {
        let ends_ms = now_us / 1_000 + self.lifetime_ms;
        Self {
            stated: self.stated.map(|(units, _)| (units, ends_ms)),
            ..self.clone()
        }
    }

    pub fn level(&self, at_us: i128) -> i128 {
        let live = self.stated.filter(|(_, ends_ms)| ends_ms * 1_000 > at_us);
        live.map_or(0, |(units, _)| units)
    }

    pub fn take(&mut self, level: i128, number: u64, now_us: i128) {
        self.held.push((number, level));
        self.stated = Some((self.units(), now_us / 1_000 + self.lifetime_ms));
    }

    /// Releases a permit. Returns whether it was held.
    pub fn release(&mut self, number: u64, now_us: i128) -> bool {
        let before = self.held.len();
        self.held.retain(|(other, _)| *other != number);
        let ends_ms = now_us / 1_000 + self.shortest_ms;
        let is_released = self.held.len() < before;
        if is_released {
            self.stated = Some((self.units(), ends_ms)).filter(|(units, _)| *units > 0);
        }
        is_released
    }

    /// Loses the store's state, but not the process's.
    pub fn forget(&mut self) {
        self.stated = None;
    }

    pub fn forgotten_at_us(&self) -> i128 {
        self.stated.map_or(0, |(_, ends_ms)| ends_ms) * 1_000
    }
}
