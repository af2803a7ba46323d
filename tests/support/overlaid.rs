//! Random control documents, and the limits that they mean.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Limiter, LimiterBuilder, Policy, PolicyDecision, Quota,
    Refund, SlidingLog, SlidingWindow, StoreError, TokenBucket,
    control::{Control, Mode},
};

use super::random::Random;

pub const KEYS: [&str; 3] = ["ann", "bob", "eve"];
pub const POLICIES: [&str; 2] = ["burst", "plan"];

/// What a document says, as a test knows it.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub modes: BTreeMap<usize, Mode>,
    pub quotas: BTreeMap<(usize, usize), Quota>,
    pub bans: BTreeMap<(usize, usize), SystemTime>,
}

/// One of several quotas, of any algorithm that grants units.
pub fn quota(random: &mut Random) -> Quota {
    let limit = random.between(1, 6);
    // All are of one period: a store may forget a bucket that is full again by the numbers of its
    // last check, which is sooner or later than by other numbers.
    let per = Duration::from_secs(3);
    let quota = match random.below(8) {
        0 | 1 => TokenBucket::new(limit, per)
            .burst(limit + random.below(3))
            .try_into(),
        2 => FixedWindow::new(limit, per).try_into(),
        3 => SlidingWindow::new(limit, per).try_into(),
        4 => SlidingLog::new(limit, per).try_into(),
        5 => TokenBucket::new(limit, per).refill_at_once().try_into(),
        6 => FixedWindow::new(limit, per).aligned().try_into(),
        _ => LeakyBucket::new(limit, per).capacity(limit).try_into(),
    };
    quota.expect("a quota")
}

impl Told {
    /// Changes the document at random, and returns what it says then.
    pub async fn change(&mut self, control: &Control, random: &mut Random, now: SystemTime) {
        let (policy, key) = (random.below(2) as usize, random.below(3) as usize);
        let (name, caller) = (POLICIES[policy], KEYS[key]);
        match random.below(8) {
            0 => {
                let mode = random.one_of(&[Mode::Enforce, Mode::Shadow, Mode::Off]);
                control.set_mode(name, mode).await.expect("a mode");
                self.modes.insert(policy, mode);
            }
            1 => {
                control.clear_mode(name).await.expect("no mode");
                self.modes.remove(&policy);
            }
            2..=4 => {
                let quota = quota(random);
                let change = control.override_quota(name, caller, quota);
                change.await.expect("an override");
                self.quotas.insert((policy, key), quota);
            }
            5 => {
                let change = control.clear_override(name, caller);
                change.await.expect("no override");
                self.quotas.remove(&(policy, key));
            }
            6 => {
                // Not over before the change is made, however long that takes.
                let until = now + Duration::from_millis(random.between(1_500, 5_000));
                control.ban(name, caller, until).await.expect("a ban");
                self.bans.insert((policy, key), until);
            }
            _ => {
                control.unban(name, caller).await.expect("no ban");
                self.bans.remove(&(policy, key));
            }
        }
    }

    /// Returns the limiter that decides so for one caller, from code alone. `None`: all policies
    /// are off.
    pub fn in_code(
        &self,
        base: &[Quota; 2],
        key: usize,
        builder: LimiterBuilder,
    ) -> Option<Limiter> {
        let policies = POLICIES.iter().enumerate().filter_map(|(policy, name)| {
            let quota = self.quotas.get(&(policy, key)).unwrap_or(&base[policy]);
            let quota = Policy::new(*name, *quota);
            match self.modes.get(&policy) {
                Some(Mode::Off) => None,
                Some(Mode::Shadow) => Some(quota.shadow()),
                _ => Some(quota),
            }
        });
        let policies: Vec<_> = policies.collect();
        let any = !policies.is_empty();
        let builder = policies.into_iter().fold(builder, LimiterBuilder::policy);
        any.then(|| builder.build().expect("valid"))
    }

    /// Returns the policies that ban a caller, and for how long.
    pub fn bans(&self, key: usize, now: SystemTime) -> Vec<(&'static str, Duration)> {
        let enforced =
            |policy: &usize| !matches!(self.modes.get(policy), Some(Mode::Off | Mode::Shadow));
        let bans = self.bans.iter();
        let bans = bans.filter(|((policy, caller), _)| *caller == key && enforced(policy));
        let bans = bans.filter_map(|((policy, _), until)| {
            // In whole milliseconds, as documents have them.
            let left = until.duration_since(now).ok()?;
            (!left.is_zero()).then_some((POLICIES[*policy], left))
        });
        bans.collect()
    }
}

/// What callers can do.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Check,
    CheckN(u64),
    UpTo(u64),
    Peek,
    Acquire(u64),
    Credit(u64),
    Debit(u64),
    Reset,
}

impl Asked {
    pub fn any(random: &mut Random) -> Self {
        let units = random.below(4);
        match random.below(12) {
            0..=3 => Self::Check,
            4 | 5 => Self::CheckN(units),
            6 => Self::UpTo(units),
            7 => Self::Peek,
            8 => Self::Acquire(units),
            9 => Self::Credit(units),
            10 => Self::Debit(units),
            _ => Self::Reset,
        }
    }

    /// Whether a banned caller is denied it.
    pub fn is_denied_by_bans(self) -> bool {
        !matches!(self, Self::Credit(_) | Self::Debit(_) | Self::Reset)
    }

    pub async fn of(self, limiter: &Limiter, key: &str) -> Result<Option<Decision>, StoreError> {
        Ok(Some(match self {
            Self::Check => limiter.check(key).await?,
            Self::CheckN(units) => limiter.check_n(key, units).await?,
            Self::UpTo(units) => limiter.take_up_to(key, units).await?,
            Self::Peek => limiter.peek(key).await?,
            Self::Acquire(units) => {
                let permit = limiter.acquire_n(key, units, Duration::ZERO).await?;
                permit.decision().clone()
            }
            Self::Credit(units) => Refund::decision(&limiter.credit(key, units).await?).clone(),
            Self::Debit(units) => limiter.debit(key, units).await?,
            Self::Reset => {
                limiter.reset(key).await?;
                return Ok(None);
            }
        }))
    }
}

/// All that a caller can see of a decision.
pub fn seen(decision: &Decision) -> String {
    let of =
        |policy: &PolicyDecision| format!("{:?} {:?} {}", policy, policy.quota(), policy.charged());
    let policies: Vec<_> = decision.policies().map(of).collect();
    let shadows: Vec<_> = decision.shadow_policies().map(of).collect();
    format!("{:?} {policies:?} {shadows:?}", decision.verdict())
}
