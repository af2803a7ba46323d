//! The reply to a script call, and what it means for each check.

use std::iter;

use smallvec::SmallVec;

use super::request::{Repeated, ScriptCall, ScriptRequest, algorithm, max_verdict};
use crate::{
    Decision, PolicyDecision, StoreError,
    charge::{Charge, Operation},
    decision::ShadowOutcome,
    error::StoreErrorKind,
    quota::{
        EXACT,
        arithmetic::{BucketState, HoldReading, Reading},
    },
    store::decide::policy_decision,
};

/// The verdict where unexpected data is stored under a key.
const CORRUPT: i64 = -1;
/// The verdict where Redis refused a command with a word that is not listed. The listed words have
/// the verdicts below it, in this order.
const REFUSED: i64 = -2;
const REFUSALS: [&str; 5] = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM"];

/// The numbers of a reply.
pub(crate) type Integers = SmallVec<[i64; 8]>;

/// The result of each check, including equal ones, in their order.
pub(crate) type ScriptReply = SmallVec<[Result<CheckResult, StoreError>; 1]>;

/// What the script found for one check.
#[derive(Clone, Debug)]
pub(crate) struct CheckResult {
    pub(crate) now_us: u64,
    /// 0, 1, or the units taken.
    pub(crate) fitting: u64,
    /// Each charge's bucket before the check.
    pub(crate) readings: SmallVec<[Reading; 1]>,
    /// Of each shadow, what was taken and its bucket before. `None`: it could not be decided.
    pub(crate) shadows: Vec<Option<(u64, Reading)>>,
}

impl CheckResult {
    /// Returns the result of the check that came behind `turn` equal ones. This is the result of
    /// all of them: the first `fitting` were allowed.
    fn of_turn(&self, turn: u64, part: &[Charge<'_>]) -> Self {
        let taken = turn.min(self.fitting);
        let after = |before: u64, more: u64| before.saturating_add(more.saturating_mul(taken));
        let readings = self.readings.iter().zip(part);
        let readings = readings.map(|(reading, charge)| {
            let (mut reading, demand) = (*reading, &charge.demand);
            let level = &mut reading.standing.level;
            *level = after(*level, demand.charged_level());
            if let Some(hold) = &mut reading.hold {
                hold.held = after(hold.held, demand.held_units());
            }
            reading
        });
        Self {
            now_us: self.now_us,
            fitting: u64::from(turn < self.fitting),
            readings: readings.collect(),
            shadows: Vec::new(),
        }
    }
}

impl ScriptRequest {
    pub(crate) fn decision(&self, found: &CheckResult) -> Decision {
        let (operation, now_us, fitting) = (self.operation, found.now_us, found.fitting);
        let policies = policy_decisions(&self.charges, found, operation, fitting);
        let decision = Decision::new(operation, policies, fitting);
        let shadows = self.shadows.iter().zip(&found.shadows);
        let shadows = shadows.map(|(charge, found)| match found {
            Some((fitting, reading)) => {
                policy_decision(charge, operation, *fitting, now_us, reading).into()
            }
            None => ShadowOutcome::undecided(charge.policy.clone()),
        });
        decision.with_shadows(shadows.collect())
    }
}

/// Returns the part of each policy in a decision.
pub(super) fn policy_decisions<'a>(
    charges: &'a [Charge<'static>],
    found: &'a CheckResult,
    operation: Operation,
    fitting: u64,
) -> impl Iterator<Item = PolicyDecision> + 'a {
    let charges = charges.iter().zip(&found.readings);
    charges.map(move |(charge, reading)| {
        policy_decision(charge, operation, fitting, found.now_us, reading)
    })
}

/// Decodes the reply to a call. A reply that is not exactly an answer to this call is an
/// error, and none of it is used.
pub(crate) fn decode(integers: &[i64], call: &ScriptCall<'_>) -> Result<ScriptReply, StoreError> {
    let mut rest = Rest(integers);
    if rest.integer()? != call.nonce {
        return Err(foreign());
    }
    let now_us = rest.number()?;
    let mut reply = ScriptReply::with_capacity(call.checks.len());
    for check in call.checks {
        let mut parts = check.request.parts();
        let first = reply.len();
        for part in parts.by_ref().take(1) {
            reply.extend(rest.results(*check, part, now_us)?);
        }
        for part in parts {
            let found = rest.results(*check, part, now_us)?;
            for (result, found) in reply.iter_mut().skip(first).zip(found) {
                let found = found.ok().and_then(|found| {
                    let reading = found.readings.first()?;
                    Some((found.fitting, *reading))
                });
                if let Ok(result) = result {
                    result.shadows.push(found);
                }
            }
        }
    }
    match rest.0 {
        [] => Ok(reply),
        _ => Err(foreign()),
    }
}

/// Whether Redis refused the commands of every check: then no single bucket is the cause. A shadow
/// may be of a policy that writes nothing, so it does not count.
pub(super) fn is_refused(reply: &ScriptReply) -> bool {
    let mut results = reply.iter();
    results.all(|result| result.as_ref().is_err_and(StoreError::is_refused))
}

/// Returns whether a penalty has written its state because the call [writes](ScriptCall::writes).
pub(super) fn has_written(call: &ScriptCall<'_>, reply: &ScriptReply) -> bool {
    let times = |check: &Repeated<'_>| usize::try_from(check.times).unwrap_or(usize::MAX);
    let requests = call.checks.iter();
    let mut results = requests
        .flat_map(|check| iter::repeat_n(check.request, times(check)))
        .zip(reply);
    call.writes
        && results.any(|(request, result)| {
            let is_take = request.operation == Operation::Take;
            let mut charges = request.charges.iter();
            let has_penalty = charges.any(|charge| charge.demand.quota.penalty().is_some());
            is_take && has_penalty && result.as_ref().is_ok_and(|found| found.fitting > 0)
        })
}

/// The rest of a reply.
struct Rest<'a>(&'a [i64]);

impl Rest<'_> {
    /// Reads the results of a part of equal checks: one for each.
    fn results(
        &mut self,
        check: Repeated<'_>,
        part: &[Charge<'_>],
        now_us: u64,
    ) -> Result<ScriptReply, StoreError> {
        let mut results = ScriptReply::new();
        let mut left = check.times;
        while left > 0 {
            let (times, result) = self.result(check, part, left, now_us)?;
            left -= times;
            if check.times == 1 {
                results.push(result);
                continue;
            }
            results.extend((0..times).map(|turn| match &result {
                Ok(found) => Ok(found.of_turn(turn, part)),
                Err(error) => Err(error.clone()),
            }));
        }
        Ok(results)
    }

    /// Reads the next result of a part of a check, or of as many of the `left` equal checks as the
    /// reply states. The outer error is one of the whole reply.
    fn result(
        &mut self,
        check: Repeated<'_>,
        part: &[Charge<'_>],
        left: u64,
        now_us: u64,
    ) -> Result<(u64, Result<CheckResult, StoreError>), StoreError> {
        let (times, max) = match check.times {
            1 => (1, max_verdict(check.request.operation, part)),
            _ => {
                let times = self.number()?;
                (times, times)
            }
        };
        if times == 0 || times > left {
            return Err(foreign());
        }
        let verdict = self.integer()?;
        let mut readings = SmallVec::new();
        for charge in part {
            readings.push(self.reading(charge)?);
        }
        let result = match verdict {
            CORRUPT => Err(StoreError::new(StoreErrorKind::CorruptState)),
            ..CORRUPT => Err(refusal(verdict)?),
            _ => Ok(CheckResult {
                now_us,
                fitting: u64::try_from(verdict)
                    .ok()
                    .filter(|fitting| *fitting <= max)
                    .ok_or_else(foreign)?,
                readings,
                shadows: Vec::new(),
            }),
        };
        Ok((times, result))
    }

    /// Reads the bucket of a charge.
    fn reading(&mut self, charge: &Charge<'_>) -> Result<Reading, StoreError> {
        let integers = algorithm(charge);
        let standing = BucketState {
            level: self.number()?,
            mark: if integers > 1 { self.number()? } else { 0 },
            more: if integers > 2 { self.number()? } else { 0 },
            unsaved: false,
        };
        let hold = match &charge.demand.hold {
            None => None,
            Some(hold) => Some(HoldReading {
                held: self.number()?,
                found: self.number()?.min(hold.units),
                generation: self.number()?,
            }),
        };
        Ok(Reading { standing, hold })
    }

    fn integer(&mut self) -> Result<i64, StoreError> {
        let (first, rest) = self.0.split_first().ok_or_else(foreign)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let number = u64::try_from(self.integer()?).ok();
        // The script computes with doubles, so none of its numbers is larger.
        number.filter(|number| *number <= EXACT).ok_or_else(foreign)
    }
}

/// Returns the error that this verdict stands for.
fn refusal(verdict: i64) -> Result<StoreError, StoreError> {
    let mut words = (1..).map(|number| REFUSED - number).zip(REFUSALS);
    let word = match words.find(|(number, _)| *number == verdict) {
        Some((_, word)) => word,
        None if verdict == REFUSED => "an unknown error",
        None => return Err(foreign()),
    };
    let cause = format!("Redis refused a command of the script with {word}");
    Ok(StoreError::with_source(StoreErrorKind::Refused, cause))
}

fn foreign() -> StoreError {
    StoreError::new(StoreErrorKind::ForeignReply)
}

#[cfg(test)]
mod tests;
