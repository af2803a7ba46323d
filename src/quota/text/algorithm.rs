//! The names of algorithms.

use std::{fmt, str::FromStr};

use crate::{
    Algorithm, ConfigError,
    util::text::{Mistake, Words, choice, quoted},
};

const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::Concurrency,
    Algorithm::Penalty,
    Algorithm::Pause,
];

impl Algorithm {
    /// Returns its name in texts.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token bucket",
            Self::LeakyBucket => "leaky bucket",
            Self::FixedWindow => "fixed window",
            Self::SlidingWindow => "sliding window",
            Self::SlidingLog => "sliding log",
            Self::Concurrency => "concurrency",
            Self::Penalty => "penalty",
            Self::Pause => "pause",
        }
    }
}

/// Writes its name in lower case, as in `token bucket`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = ConfigError;

    /// Reads the name of an algorithm, such as `token bucket` or `sliding_log`.
    ///
    /// # Errors
    ///
    /// Returns an error if no algorithm has the name.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut words = Words::new(text);
        let (name, _) = words.take_words(&[]);
        let mut named = ALGORITHMS.into_iter().filter(|it| it.name() == name);
        named.next().filter(|_| words.end().is_ok()).ok_or_else(|| {
            let proposal = choice(text, &names());
            let message = format!("algorithm {text:?}: no such algorithm{proposal}");
            ConfigError::new("algorithm-text", message)
        })
    }
}

/// The names of those that a quota may have.
fn names() -> [&'static str; 8] {
    ALGORITHMS.map(Algorithm::name)
}

/// Takes the name of a quota's algorithm.
pub(super) fn take(words: &mut Words<'_>) -> Result<Algorithm, Mistake> {
    let first = words.peek();
    let (name, at) = words.take_words(&["of", "after", "per", "at", "without"]);
    let named = ALGORITHMS.into_iter().find(|it| it.name() == name);
    named.ok_or_else(|| {
        let wrong = if name.is_empty() { first.text } else { &name };
        let (wrong, proposal) = (quoted(wrong), choice(&name, &names()));
        let reason = format!("{wrong} is neither a number nor an algorithm{proposal}");
        Mistake::new(at, reason)
    })
}
