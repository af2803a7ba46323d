//! What a script call answers, and what it means for each check.

use smallvec::SmallVec;

use super::question::{AskedLeg, Question, Turns};
use crate::{
    Decision, PolicyDecision, StoreError,
    charge::Operation,
    error::StoreErrorKind,
    quota::{EXACT, Rule, each, rules::Standing},
};

/// The verdict where foreign data stood under a key.
const CORRUPT: i64 = -1;
/// The verdict where Redis refused a command; one less with the first of the
/// words below, and so on.
const REFUSED: i64 = -2;
const REFUSALS: [&str; 5] = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM"];

/// What a script answers.
pub(super) type Integers = SmallVec<[i64; 8]>;

/// What the script found out about one check.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) now_us: u64,
    /// 0, 1, or the units taken.
    pub(super) fitting: u64,
    /// How each leg stood before.
    pub(super) standings: SmallVec<[Standing; 1]>,
}

/// What it found out about so many equal ones in a row. Of more than one,
/// `fitting` were admitted, the first ones.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) times: u64,
    pub(super) found: Result<Found, StoreError>,
}

impl Part {
    /// What each of them found.
    pub(super) fn one_by_one(
        self,
        question: &Question,
    ) -> impl Iterator<Item = Result<Found, StoreError>> {
        let mut turns = 0..self.times;
        let mut found = Some(self.found);
        std::iter::from_fn(move || {
            let turn = turns.next()?;
            if turns.is_empty() && turn == 0 {
                return found.take();
            }
            Some(match found.as_ref()? {
                Ok(found) => Ok(found.of_turn(turn, question)),
                Err(error) => Err(error.clone()),
            })
        })
    }
}

/// In the order of the checks.
pub(super) type Parts = SmallVec<[Part; 1]>;

impl Found {
    /// What the check found that had so many equal ones before it.
    pub(super) fn of_turn(&self, turn: u64, question: &Question) -> Self {
        let taken = turn.min(self.fitting);
        let mut standings = SmallVec::new();
        for (before, leg) in self.standings.iter().zip(&question.legs) {
            let more = leg.demand.level.saturating_mul(taken);
            standings.push(Standing {
                level: before.level.saturating_add(more),
                ..*before
            });
        }
        Self {
            now_us: self.now_us,
            fitting: u64::from(turn < self.fitting),
            standings,
        }
    }
}

impl Question {
    pub(super) fn decision(&self, found: &Found) -> Decision {
        let (operation, now_us, fitting) = (self.operation, found.now_us, found.fitting);
        let of = |(leg, before): (&AskedLeg, &Standing)| {
            leg.decision(operation, fitting, now_us, *before)
        };
        let mut policies = self.legs.iter().zip(&found.standings).map(of);
        match (policies.len(), policies.next()) {
            (1, Some(policy)) => Decision::of_one(operation, policy, fitting, now_us),
            (_, first) => {
                let policies = first.into_iter().chain(policies);
                Decision::new(operation, policies, fitting, now_us)
            }
        }
    }
}

impl AskedLeg {
    /// Its part of a decision, from how it stood before.
    pub(super) fn decision(
        &self,
        operation: Operation,
        fitting: u64,
        now_us: u64,
        before: Standing,
    ) -> PolicyDecision {
        let (name, asked) = (self.name.clone(), &self.demand);
        each!(asked.quota, rule => {
            let at = asked.at(rule, operation, now_us, self.offset_ms);
            PolicyDecision::new(rule, operation, name, asked, fitting, at, before)
        })
    }
}

/// Reads the reply to a call. Whatever is not exactly an answer to what was
/// asked is an error, and nothing of it is believed.
pub(super) fn read(
    integers: &[i64],
    nonce: i64,
    checks: &[Turns<'_>],
) -> Result<Parts, StoreError> {
    let mut reply = Reading(integers);
    if reply.integer()? != nonce {
        return Err(foreign());
    }
    let now_us = reply.number()?;
    let mut parts = Parts::with_capacity(checks.len());
    for check in checks {
        let mut left = check.times;
        while left > 0 {
            let part = reply.part(check, left, now_us)?;
            left -= part.times;
            parts.push(part);
        }
    }
    match reply.0 {
        [] => Ok(parts),
        _ => Err(foreign()),
    }
}

/// Whether Redis refused the commands of every check: not this caller's bucket
/// is the trouble.
pub(super) fn refuses_all(parts: &[Part]) -> bool {
    let is_refused = |part: &Part| part.found.as_ref().is_err_and(StoreError::is_refused);
    parts.iter().all(is_refused)
}

/// What is left of a reply.
struct Reading<'a>(&'a [i64]);

impl Reading<'_> {
    /// What it says of this check, or of the next times that it was asked for.
    fn part(&mut self, check: &Turns<'_>, left: u64, now_us: u64) -> Result<Part, StoreError> {
        let question = check.question;
        let (times, most) = match check.times {
            1 => (1, question.most()),
            _ => {
                let times = self.number()?;
                (times, times)
            }
        };
        if times == 0 || times > left {
            return Err(foreign());
        }
        let verdict = self.integer()?;
        let mut standings = SmallVec::new();
        for leg in &question.legs {
            let integers = leg.algorithm();
            standings.push(Standing {
                level: self.number()?,
                mark: if integers > 1 { self.number()? } else { 0 },
                more: if integers > 2 { self.number()? } else { 0 },
                unsaved: false,
            });
        }
        let found = match verdict {
            CORRUPT => Err(StoreError::new(StoreErrorKind::CorruptState)),
            refused if refused < CORRUPT => Err(refusal(refused)?),
            fitting => Ok(Found {
                now_us,
                fitting: u64::try_from(fitting)
                    .ok()
                    .filter(|fitting| *fitting <= most)
                    .ok_or_else(foreign)?,
                standings,
            }),
        };
        Ok(Part { times, found })
    }

    fn integer(&mut self) -> Result<i64, StoreError> {
        let (first, rest) = self.0.split_first().ok_or_else(foreign)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let number = u64::try_from(self.integer()?).ok();
        // The script works with doubles: none of its numbers is larger.
        number.filter(|number| *number <= EXACT).ok_or_else(foreign)
    }
}

/// What this verdict says, if it is one.
fn refusal(verdict: i64) -> Result<StoreError, StoreError> {
    let known = (1..).zip(REFUSALS);
    let mut words = known.map(|(number, word)| (REFUSED - number, word));
    let word = match words.find(|(number, _)| *number == verdict) {
        Some((_, word)) => word,
        None if verdict == REFUSED => "a word that is none of its usual ones",
        None => return Err(foreign()),
    };
    let cause = format!("Redis refused a command of the script with {word}");
    Ok(StoreError::with_source(StoreErrorKind::Refused, cause))
}

fn foreign() -> StoreError {
    StoreError::new(StoreErrorKind::ForeignReply)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{Key, Policy, TokenBucket, charge::Check, store::redis::key::KeyNames};

    const NOW_US: i64 = 1_767_225_600_000_000;

    /// How many were admitted of each part, where three units are asked for.
    fn admitted(operation: Operation, times: u64, said: &[i64]) -> Option<Vec<(u64, u64)>> {
        let policy = Policy::new("api", TokenBucket::per_second(5)).cost(3);
        let policy = policy.compile(Default::default()).expect("a policy");
        let key = std::borrow::Cow::Owned(Key::from("ann"));
        let legs = [policy.charge(key, std::borrow::Cow::Borrowed(&policy.demand))];
        let names = KeyNames::new("tt".to_owned(), None).expect("names");
        let question = &Question::new(&Check::new(operation, &legs), &names);
        let integers: Integers = [7, NOW_US]
            .into_iter()
            .chain(said.iter().copied())
            .collect();
        let parts = read(&integers, 7, &[Turns { question, times }]).ok()?;
        let part = |part: Part| Some((part.times, part.found.ok()?.fitting));
        parts.into_iter().map(part).collect()
    }

    #[test]
    fn no_more_is_believed_to_be_taken_than_was_asked_for() {
        for (said, is_believed) in [(0, true), (3, true), (4, false), (i64::MAX, false)] {
            let admitted = admitted(Operation::TakeUpTo, 1, &[said, 0]);
            assert_eq!(admitted, is_believed.then(|| vec![(1, said as u64)]));
        }
        assert_eq!(admitted(Operation::Take, 1, &[1, 0]), Some(vec![(1, 1)]));
        assert_eq!(admitted(Operation::Take, 1, &[2, 0]), None);
    }

    #[test]
    fn numbers_that_no_double_counts_to_are_not_the_scripts() {
        let most = EXACT as i64;
        assert_eq!(admitted(Operation::Take, 1, &[1, most]), Some(vec![(1, 1)]));
        for number in [-1, most + 1, i64::MIN, i64::MAX] {
            assert_eq!(admitted(Operation::Take, 1, &[1, number]), None);
        }
    }

    #[test]
    fn of_equal_checks_each_is_answered_once() {
        let admitted = |said: &[i64]| admitted(Operation::Take, 3, said);
        assert_eq!(admitted(&[3, 2, 0]), Some(vec![(3, 2)]));
        let one_by_one = [1, 1, 0, 1, 1, 0, 1, 0, 0];
        assert_eq!(admitted(&one_by_one), Some(vec![(1, 1), (1, 1), (1, 0)]));
        for said in [
            &[0, 0, 0][..],
            &[4, 2, 0],
            &[2, 1, 0],
            &[3, 4, 0],
            &[-1, 1, 0],
            &[3, 2, 0, 0],
            &[2, 2, 0, 2, 1, 0],
        ] {
            assert_eq!(admitted(said), None, "{said:?}");
        }
    }
}
