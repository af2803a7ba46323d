//! Counts under settings that are replaced.

use std::{collections::BTreeMap, sync::Arc};

use super::{GONE_POLICIES, Recorder};
use crate::{
    metrics::{Snapshot, StoreMetrics},
    policy_name::Name,
    util::split_mix::SplitMix64,
};

fn names(texts: impl IntoIterator<Item = String>) -> Vec<Name> {
    let names = texts.into_iter().map(|text| Name::new(&text));
    names.map(|name| name.expect("a name")).collect()
}

fn snapshot(recorder: &Recorder) -> Snapshot {
    recorder.snapshot(StoreMetrics::new("memory"))
}

fn first(policies: &[Name]) -> Arc<Recorder> {
    Recorder::new(None, "api".into(), policies, None, None)
}

fn replaced(recorder: &Recorder, policies: &[Name]) -> Arc<Recorder> {
    Recorder::new(Some(recorder), "api".into(), policies, None, None)
}

/// Requests that begin under one version and end under another, in any order.
#[test]
fn counts_of_all_versions_add_up() {
    for seed in 0..50 {
        let mut random = SplitMix64(seed);
        let mut below = move |end| random.below(end);
        let some = |bits: u64| {
            let texts = (0..4).filter(|policy| bits & (1 << policy) != 0);
            names(texts.map(|policy| format!("policy-{policy}")))
        };
        let mut policies = some(below(16));
        let mut current = first(&policies);
        let mut in_flight: Vec<(Arc<Recorder>, Vec<Name>)> = Vec::new();
        let (mut requests, mut checks) = (0, BTreeMap::<String, u64>::new());
        for _ in 0..2_000 {
            match below(10) {
                0..4 => in_flight.push((Arc::clone(&current), policies.clone())),
                4..8 if !in_flight.is_empty() => {
                    let chosen = below(in_flight.len() as u64) as usize;
                    let (recorder, policies) = in_flight.swap_remove(chosen);
                    recorder.cancelled();
                    requests += 1;
                    for policy in &policies {
                        recorder.shadow_unknown(policy);
                        *checks.entry(policy.text.to_string()).or_default() += 1;
                    }
                }
                8 => {
                    let chosen = some(below(16));
                    // One that is checked and does not take place changes nothing.
                    drop(replaced(&current, &some(below(16))));
                    current = replaced(&current, &chosen);
                    policies = chosen;
                }
                _ => {
                    let found = snapshot(&current);
                    assert_eq!(found.requests.total(), requests, "seed {seed}");
                    assert_eq!(found.policies().len(), policies.len());
                    for (policy, found) in found.policies() {
                        let counted = checks.get(policy).copied().unwrap_or_default();
                        assert_eq!(found.unknown, counted, "seed {seed}, {policy}");
                    }
                }
            }
        }
    }
}

#[test]
fn many_versions_take_no_more_and_more_memory() {
    let of = |version: usize| names([format!("v{version}"), "stays".to_owned()]);
    let mut current = first(&of(0));
    let longest = Arc::clone(&current);
    for version in 1..2 * GONE_POLICIES {
        let [policy, stays] = &of(version - 1)[..] else {
            unreachable!("two names");
        };
        current.shadow_unknown(policy);
        current.shadow_unknown(stays);
        current = replaced(&current, &of(version));
    }
    longest.cancelled();
    let found = snapshot(&current);
    assert_eq!(found.requests.cancelled, 1);
    let stays = found.policy("stays").map(|checks| checks.unknown);
    assert_eq!(stays, Some(2 * GONE_POLICIES as u64 - 1));
    assert_eq!(current.gone.len(), GONE_POLICIES);
}

/// It is another series.
#[test]
fn another_name_starts_at_0() {
    let policies = names(["a".to_owned()]);
    let one = first(&policies);
    one.shadow_unknown(&policies[0]);
    let renamed = Recorder::new(Some(&one), "web".into(), &policies, None, None);
    let unknown = snapshot(&renamed).policy("a").map(|checks| checks.unknown);
    assert_eq!(unknown, Some(0));
}

#[test]
fn callers_that_wait_are_seen_under_all_versions() {
    let one = first(&names(["a".to_owned()]));
    let wait = one.waits.begin();
    let two = replaced(&one, &names(["b".to_owned()]));
    drop(one);
    assert_eq!(snapshot(&two).waiting, 1);
    drop(wait);
    let found = snapshot(&two);
    assert_eq!((found.waiting, found.wait_seconds.count()), (0, 1));
}

/// Counts are read in the order of fields.
#[test]
fn a_result_and_a_source_have_the_field_of_their_name() {
    use crate::{Source, metrics::RequestResult as Result};

    let results = [
        Result::Allowed,
        Result::Denied,
        Result::Banned,
        Result::Impossible,
        Result::KeyMissing,
        Result::Listed,
        Result::StoreFailed,
        Result::Misconfigured,
        Result::NotLimited,
        Result::Exempt,
        Result::Cancelled,
    ];
    let sources = [
        Source::List,
        Source::Store,
        Source::Cache,
        Source::Lease,
        Source::Local,
        Source::StoreFailure,
    ];
    let found = snapshot(&first(&[]));
    let variants = results.map(|result| format!("{result:?}"));
    let named = found.requests.by_result();
    let fields = named.map(|(name, _)| name.replace('_', ""));
    assert!(fields.eq(variants.map(|name| name.to_lowercase())));
    assert!(results.into_iter().map(|result| result as usize).eq(0..11));
    let named = found.decisions.by_source().map(|(name, _)| name);
    assert!(named.eq(sources.map(Source::name)));
    assert!(sources.into_iter().map(|source| source as usize).eq(0..6));
}
