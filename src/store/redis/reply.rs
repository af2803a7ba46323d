//! What a script call answers, and what it means for each check.

use fred::types::Value;
use smallvec::SmallVec;

use super::script::{AskedLeg, REFUSED, Shape};
use crate::{
    Decision, PolicyDecision, StoreError,
    error::StoreErrorKind,
    quota::{EXACT, Rule, each, rules::Standing},
    store::Operation,
};

/// What the script found out about one check.
#[derive(Clone, Debug)]
pub(super) struct Found {
    operation: Operation,
    pub(super) now_us: u64,
    /// 0, 1, or the units taken.
    pub(super) fitting: u64,
    /// How each leg stood before.
    pub(super) standings: SmallVec<[Standing; 2]>,
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
        let (name, asked) = (self.name.clone(), &self.asked);
        each!(asked.quota, rule => {
            let at = asked.at(rule, operation, now_us, self.offset_ms);
            PolicyDecision::new(rule, operation, name, asked, fitting, at, before)
        })
    }
}

impl Found {
    pub(super) fn decision(self, legs: &[AskedLeg]) -> Decision {
        let (operation, now_us, fitting) = (self.operation, self.now_us, self.fitting);
        let policies = legs
            .iter()
            .zip(self.standings)
            .map(|(leg, standing)| leg.decision(operation, fitting, now_us, standing));
        Decision::new(operation, policies, fitting, now_us)
    }
}

/// Reads the reply to a call, one check after another. Whatever is not
/// exactly such a reply is an error.
pub(super) struct Reply {
    integers: std::vec::IntoIter<Value>,
    now_us: u64,
}

impl Reply {
    /// `integers`: of all checks together.
    pub(super) fn new(reply: Value, nonce: i64, integers: usize) -> Result<Self, StoreError> {
        let Value::Array(values) = reply else {
            return Err(foreign());
        };
        if values.len() != 2 + integers {
            return Err(foreign());
        }
        // One that is not an integer would put all behind it out of step.
        if !values.iter().all(Value::is_integer) {
            return Err(foreign());
        }
        let mut reply = Self {
            integers: values.into_iter(),
            now_us: 0,
        };
        if reply.integer()? != nonce {
            return Err(foreign());
        }
        reply.now_us = reply.number()?;
        Ok(reply)
    }

    /// Whether Redis refused the commands of every check: not this caller's
    /// bucket is the trouble. `shapes`: how many integers each check has.
    pub(super) fn refuses_all(&self, shapes: &[usize]) -> bool {
        let mut at = 0;
        shapes.iter().all(|integers| {
            let verdict = self.integers.as_slice().get(at);
            at += integers;
            matches!(verdict, Some(Value::Integer(REFUSED)))
        })
    }

    /// The next check's.
    pub(super) fn found(&mut self, shape: &Shape) -> Result<Found, StoreError> {
        let verdict = self.integer()?;
        let mut standings = SmallVec::new();
        let mut is_foreign = false;
        for integers in &shape.legs {
            // Read to the end, so that the next check starts where it should.
            let mut number = |is_there: bool| {
                let number = if is_there { self.number() } else { Ok(0) };
                is_foreign |= number.is_err();
                number.unwrap_or_default()
            };
            standings.push(Standing {
                level: number(true),
                mark: number(*integers > 1),
                more: number(*integers > 2),
                unsaved: false,
            });
        }
        let fitting = match verdict {
            _ if is_foreign => return Err(foreign()),
            -1 => return Err(StoreError::new(StoreErrorKind::CorruptState)),
            REFUSED => {
                let cause = "Redis refused a command of the script: its user lacks a right, \
                             or it is out of memory, read-only or cannot save";
                return Err(StoreError::with_source(StoreErrorKind::Refused, cause));
            }
            fitting => u64::try_from(fitting)
                .ok()
                .filter(|fitting| *fitting <= shape.most)
                .ok_or_else(foreign)?,
        };
        Ok(Found {
            operation: shape.operation,
            now_us: self.now_us,
            fitting,
            standings,
        })
    }

    fn integer(&mut self) -> Result<i64, StoreError> {
        match self.integers.next() {
            Some(Value::Integer(integer)) => Ok(integer),
            _ => Err(foreign()),
        }
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let number = u64::try_from(self.integer()?).ok();
        // The script works with doubles: none of its numbers is larger.
        number.filter(|number| *number <= EXACT).ok_or_else(foreign)
    }
}

fn foreign() -> StoreError {
    StoreError::new(StoreErrorKind::ForeignReply)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    /// Of one leg with one integer, where three units were asked for.
    fn verdict(operation: Operation, most: u64, said: [i64; 2]) -> Option<u64> {
        let shape = Shape {
            operation,
            most,
            legs: smallvec![1],
        };
        let integers = [7, 1_767_225_600_000_000].into_iter().chain(said);
        let reply = Value::Array(integers.map(Value::Integer).collect());
        let mut reply = Reply::new(reply, 7, 2).expect("a reply");
        reply.found(&shape).ok().map(|found| found.fitting)
    }

    #[test]
    fn no_more_is_believed_to_be_taken_than_was_asked_for() {
        for (said, believed) in [(0, Some(0)), (3, Some(3)), (4, None), (i64::MAX, None)] {
            assert_eq!(verdict(Operation::TakeUpTo, 3, [said, 0]), believed);
        }
        assert_eq!(verdict(Operation::Take, 1, [1, 0]), Some(1));
        assert_eq!(verdict(Operation::Take, 1, [2, 0]), None);
    }

    #[test]
    fn numbers_that_no_double_counts_to_are_not_the_scripts() {
        let most = EXACT as i64;
        assert_eq!(verdict(Operation::Take, 1, [1, most]), Some(1));
        for number in [-1, most + 1, i64::MIN, i64::MAX] {
            assert_eq!(verdict(Operation::Take, 1, [1, number]), None);
        }
    }
}
