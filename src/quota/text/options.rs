//! The options of a quota: what follows the commas.

use std::{ops::Range, time::Duration};

use crate::util::text::{Mistake, Words, choice, quoted};

#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    Nothing,
    Number,
    Time,
}

/// The options that a text sets, each at most once.
#[derive(Debug, Default)]
pub(super) struct Options(Vec<Given>);

#[derive(Debug)]
struct Given {
    name: &'static str,
    /// Where the name is.
    at: Range<usize>,
    number: Option<u64>,
    time: Option<Duration>,
}

impl Options {
    /// Takes all further options, up to the end of the text. `whose` is "a token bucket", for
    /// example.
    pub(super) fn take(
        mut self,
        words: &mut Words<'_>,
        whose: &str,
        allowed: &[(&'static str, Takes)],
    ) -> Result<Self, Mistake> {
        while !words.peek().is_end() {
            let comma = words.peek();
            if !words.take(",") {
                let reason = format!("{comma} follows without a comma; add one, or drop it");
                return Err(Mistake::new(comma.range(), reason));
            }
            if words.peek().is_end() {
                let reason = "nothing follows the last comma; drop it";
                return Err(Mistake::new(comma.range(), reason));
            }
            self.take_one(words, whose, allowed)?;
        }
        Ok(self)
    }

    /// Takes an option, after its comma.
    pub(super) fn take_one(
        &mut self,
        words: &mut Words<'_>,
        whose: &str,
        allowed: &[(&'static str, Takes)],
    ) -> Result<(), Mistake> {
        let first = words.peek();
        let Some(&(name, takes)) = allowed.iter().find(|(name, _)| words.take(name)) else {
            return Err(unknown(words, whose, allowed));
        };
        let at = first.range();
        if self.get(name).is_some() {
            let reason = format!("{name:?} is set twice; drop one");
            return Err(Mistake::new(at, reason));
        }
        let (number, time) = match takes {
            Takes::Nothing => (None, None),
            Takes::Number => (Some(words.number()?), None),
            Takes::Time => (None, Some(words.duration()?)),
        };
        self.0.push(Given {
            name,
            at,
            number,
            time,
        });
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&Given> {
        self.0.iter().find(|given| given.name == name)
    }

    /// Returns where the option is set.
    pub(super) fn place(&self, name: &str) -> Option<Range<usize>> {
        self.get(name).map(|given| given.at.clone())
    }

    /// Returns the number of an option that takes one, if it is set.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.number
    }

    /// Returns the time of an option that takes one, if it is set.
    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        self.get(name)?.time
    }
}

/// Returns what is wrong with an option that is not allowed.
fn unknown(words: &mut Words<'_>, whose: &str, allowed: &[(&'static str, Takes)]) -> Mistake {
    let first = words.peek();
    let (name, at) = words.take_words(&[]);
    let reason = if first.is_number() {
        format!("{first} is no option; write large numbers without commas, as in \"1_000\"")
    } else if name.is_empty() {
        format!("{first} is no option; drop it")
    } else {
        let names: Vec<_> = allowed.iter().map(|(known, _)| *known).collect();
        let (name, proposal) = (quoted(&name), choice(&name, &names));
        format!("{whose} has no option {name}{proposal}")
    };
    Mistake::new(at, reason)
}
