mod answers;
mod changes;
mod documents;
mod following;
#[cfg(feature = "tracing")]
mod log;
mod looks;
mod losses;
#[cfg(all(feature = "redis", feature = "testing"))]
mod processes;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{Control, ControlError, held::Held, held::Source};
use crate::{
    Clock, Fingerprint, Key, ManualClock, Quota, StoreError, TokenBucket,
    fingerprint::Secret,
    overrides::{Mode, Override, Overrides},
    store::StoreFuture,
    util::lock::lock,
};

fn quota(per_second: u64) -> Quota {
    let quota = TokenBucket::per_second(per_second).try_into();
    quota.expect("a valid quota")
}

fn fingerprint(key: &str) -> Fingerprint {
    Fingerprint::from(&Key::from(key))
}

/// A store whose every answer a test chooses.
#[derive(Clone, Debug, Default)]
struct Shelf(Arc<Mutex<Shelved>>);

#[derive(Debug, Default)]
struct Shelved {
    text: Vec<u8>,
    /// What all commands fail with.
    error: Option<StoreError>,
    /// What the next changes fail with, and whether they are made nevertheless.
    lost_answers: Vec<(StoreError, bool)>,
    /// Changes of others, each just before the next change.
    rivals: Vec<Vec<u8>>,
    heads: usize,
    texts: usize,
}

impl Shelf {
    fn put(&self, text: impl Into<Vec<u8>>) {
        lock(&self.0).text = text.into();
    }

    fn text(&self) -> Vec<u8> {
        lock(&self.0).text.clone()
    }

    fn fail(&self, error: Option<StoreError>) {
        lock(&self.0).error = error;
    }

    /// Returns how many heads and texts were read since the last call.
    fn reads(&self) -> (usize, usize) {
        let mut shelved = lock(&self.0);
        (
            std::mem::take(&mut shelved.heads),
            std::mem::take(&mut shelved.texts),
        )
    }

    fn held(&self, clock: &Arc<ManualClock>) -> Control {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        // Followed by no task: a test looks when it wants to.
        Control(Held::new(Box::new(self.clone()), clock, Secret::default()))
    }
}

impl Source for Shelf {
    fn head(&self) -> StoreFuture<Vec<u8>> {
        let mut shelved = lock(&self.0);
        shelved.heads += 1;
        let head = super::document::head(&shelved.text).to_vec();
        let answer = shelved.error.clone().map_or(Ok(head), Err);
        Box::pin(async { answer })
    }

    fn text(&self) -> StoreFuture<Vec<u8>> {
        let mut shelved = lock(&self.0);
        shelved.texts += 1;
        let text = shelved.text.clone();
        let answer = shelved.error.clone().map_or(Ok(text), Err);
        Box::pin(async { answer })
    }

    fn replace(&self, head: Vec<u8>, text: Vec<u8>) -> StoreFuture<bool> {
        let mut shelved = lock(&self.0);
        if let Some(rival) = shelved.rivals.pop() {
            shelved.text = rival;
        }
        let is_expected = super::document::head(&shelved.text) == head;
        let lost = shelved.lost_answers.pop();
        let is_made = is_expected && lost.as_ref().is_none_or(|(_, is_made)| *is_made);
        if is_made {
            shelved.text = text;
        }
        let answer = match lost {
            Some((error, _)) => Err(error),
            None => Ok(is_expected),
        };
        Box::pin(async { answer })
    }
}

/// A layer that counts the versions that are checked against it.
#[derive(Default)]
struct Layer {
    checks: AtomicUsize,
    policies: Vec<&'static str>,
    conflict: Option<&'static str>,
}

impl super::Subscriber for Layer {
    fn check(&self, _: &Overrides) -> Vec<String> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.conflict.map(str::to_owned).into_iter().collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        self.policies.contains(&name)
    }
}

impl Layer {
    fn times(&self) -> usize {
        self.checks.load(Ordering::Relaxed)
    }
}

/// Returns the mode that a document sets for a policy.
fn mode(control: &Control, policy: &str) -> Option<Mode> {
    control.held().overrides().policy(policy)?.mode
}

/// Returns the quota and the end of the ban of each caller of a policy.
fn callers(control: &Control, policy: &str) -> HashMap<Fingerprint, (Option<Quota>, Option<u64>)> {
    let overrides = control.held().overrides();
    let given = overrides.policy(policy).into_iter();
    let callers = given.flat_map(|given| &given.callers);
    callers
        .map(|(caller, given)| (*caller, gets(given)))
        .collect()
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a change, or removes an entry.
async fn made<T>(change: impl IntoFuture<Output = Result<T, ControlError>>) -> T {
    change.await.expect("it is made")
}

/// The quota of a caller, and the end of its ban.
fn gets(given: &Override) -> (Option<Quota>, Option<u64>) {
    (
        given.quota.as_ref().map(|quota| **quota),
        given.ban.as_ref().map(|ban| ban.until_ms),
    )
}

/// Returns the policies that the entries are about, in their order.
fn policies(control: &Control) -> Vec<String> {
    let entries = control.entries().into_iter();
    let policies = entries.filter_map(|entry| entry.action.policy().map(str::to_owned));
    policies.collect()
}

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(ManualClock::new().now_us())
}

/// The version that the first change makes.
const FIRST: u64 = 1_767_225_600_000;

/// A document that switches these policies off, one after the other and long ago.
fn modes(policies: &[&str]) -> Vec<u8> {
    let changes = (1..).zip(policies).map(|(ms, policy)| {
        format!(r#"{{"kind":"mode","policy":"{policy}","changed_ms":{ms},"mode":"off"}}"#)
    });
    text(
        policies.len() as u64,
        &changes.collect::<Vec<_>>().join(","),
    )
}

fn text(version: u64, changes: &str) -> Vec<u8> {
    let write = format!("{:016x}", crate::util::random::random());
    let text =
        format!(r#"{{"format":1,"version":{version},"write":"{write}","changes":[{changes}]}}"#);
    text.into()
}
