//! Counts and errors against exact counts.

use std::{borrow::Cow, collections::HashMap, sync::Barrier, thread};

use proptest::prelude::*;

use super::{
    DeniedCaller, Known, Offenders, RecentDenial, TopDenied,
    space_saving::{ENTRIES, SpaceSaving},
};
use crate::{DenialReason, Key, policy_name::Name, util::split_mix::SplitMix64};

/// Ids are hashes, so they are even.
fn id(caller: u64) -> u64 {
    SplitMix64(caller).next()
}

fn known(caller: u64) -> Known {
    let (policy, key) = (Name::new("api").unwrap(), Key::from(caller));
    let denied = DeniedCaller {
        policy: &policy,
        key: None,
        shadow: false,
        id: id(caller),
    };
    Known::new(&denied, &key, None, Some(caller.to_string()))
}

/// A list of callers, with their exact counts.
struct Counted {
    list: SpaceSaving,
    exact: HashMap<u64, u64>,
    total: u64,
}

impl Counted {
    fn new() -> Self {
        Self {
            list: SpaceSaving::default(),
            exact: HashMap::new(),
            total: 0,
        }
    }

    fn count(&mut self, caller: u64) {
        self.list.count(id(caller), 0, known(caller));
        *self.exact.entry(caller).or_default() += 1;
        self.total += 1;
    }

    fn halve(&mut self, times: u32) {
        self.list.halve(times);
        self.exact.retain(|_, count| {
            *count = count.checked_shr(times).unwrap_or(0);
            *count > 0
        });
        self.total = self.total.checked_shr(times).unwrap_or(0);
    }

    fn to_public(&self) -> TopDenied {
        let offenders = self.list.entries.values();
        TopDenied {
            offenders: offenders.map(|known| known.offender.clone()).collect(),
            unlisted: self.list.floor,
            total: self.list.total,
            missed: 0,
        }
    }

    fn assert_exact_counts_are_within_the_errors(&self) {
        let list = self.to_public();
        assert!(list.offenders.len() <= ENTRIES);
        assert_eq!(list.total, self.total);
        assert_bounds(&list, &self.exact);
        // So each caller with more than a 128th of all is listed.
        assert!(list.unlisted <= self.total / ENTRIES as u64);
    }
}

/// Asserts that each listed count is between the exact one and that with the error, and that
/// each other is at most `unlisted`.
fn assert_bounds(list: &TopDenied, exact: &HashMap<u64, u64>) {
    let mut others = exact.clone();
    for offender in &list.offenders {
        let caller = offender.name.as_deref().map(str::parse);
        let true_count = others.remove(&caller.unwrap().unwrap()).unwrap_or(0);
        let (count, error) = (offender.count, offender.error);
        assert!(error <= count, "{error} is above {count}");
        assert!(true_count <= count, "{true_count} is above {count}");
        assert!(
            count <= true_count + error,
            "{true_count} and {error} are below {count}"
        );
    }
    let most = others.into_values().max().unwrap_or(0);
    assert!(most <= list.unlisted, "{most} is above {}", list.unlisted);
}

/// Draws callers by Zipf's law with an exponent of 1, of a million.
struct Zipf {
    sums: Vec<f64>,
    random: SplitMix64,
}

impl Zipf {
    const CALLERS: u64 = 1_000_000;

    fn new(seed: u64) -> Self {
        let sums = (1..=Self::CALLERS).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Self {
            sums: sums.collect(),
            random: SplitMix64(seed),
        }
    }

    fn next(&mut self) -> u64 {
        let whole = *self.sums.last().unwrap();
        let point = whole * (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.sums.partition_point(|sum| *sum <= point) as u64
    }
}

#[test]
fn of_a_million_callers_the_heavy_ones_are_listed() {
    let mut zipf = Zipf::new(4711);
    let mut counted = Counted::new();
    for _ in 0..300_000 {
        counted.count(zipf.next());
    }
    assert!(counted.exact.len() > 30_000, "{}", counted.exact.len());
    counted.assert_exact_counts_are_within_the_errors();

    let heavy = |count: &u64| *count > counted.total / ENTRIES as u64;
    let heavy: Vec<u64> = counted
        .exact
        .iter()
        .filter(|(_, count)| heavy(count))
        .map(|(caller, _)| *caller)
        .collect();
    assert!(heavy.len() >= 8, "{heavy:?}");
    let listed = |caller: &u64| counted.list.entries.contains_key(&id(*caller));
    assert!(heavy.iter().all(listed), "{heavy:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Count { list: usize, caller: u64 },
    Halve { times: u32 },
}

/// Few callers that come often, and many that come seldom.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let caller = prop_oneof![3 => 0..20_u64, 3 => 0..200_u64, 2 => 0..100_000_u64];
    let step = prop_oneof![
        400 => (0..3_usize, caller).prop_map(|(list, caller)| Step::Count { list, caller }),
        1 => prop_oneof![8 => 1..4_u32, 1 => 60..70_u32].prop_map(|times| Step::Halve { times }),
    ];
    proptest::collection::vec(step, 0..4_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_stay_within_their_errors_when_lists_are_halved_and_merged(
        steps in steps(),
        most in 0..400_usize,
    ) {
        let mut lists = [Counted::new(), Counted::new(), Counted::new()];
        for step in steps {
            match step {
                Step::Count { list, caller } => lists[list].count(caller),
                Step::Halve { times } => for list in &mut lists {
                    list.halve(times);
                    list.assert_exact_counts_are_within_the_errors();
                },
            }
        }
        let mut exact = HashMap::new();
        for list in &lists {
            list.assert_exact_counts_are_within_the_errors();
            for (caller, count) in &list.exact {
                *exact.entry(*caller).or_default() += count;
            }
        }
        let all = TopDenied::merge(lists.each_ref().map(Counted::to_public), most);
        prop_assert!(all.offenders.len() <= most);
        prop_assert!(all.offenders.is_sorted_by(|one, next| one.at_least() >= next.at_least()));
        prop_assert_eq!(all.total, lists.iter().map(|list| list.total).sum::<u64>());
        assert_bounds(&all, &exact);

        // The same in two steps, of which the first cuts.
        let [one, two, three] = lists.each_ref().map(Counted::to_public);
        let two = TopDenied::merge([TopDenied::merge([one, two], most), three], most);
        assert_bounds(&two, &exact);
    }
}

/// A caller may have been counted often before it was listed, or not at all.
#[test]
fn callers_are_sorted_by_what_is_certain() {
    let mut counted = Counted::new();
    let mut count = |caller: u64, times| (0..times).for_each(|_| counted.count(caller));
    count(1, 440);
    (1_000..1_000 + 127 * 400).for_each(|caller| count(caller, 1));
    count(2, 50);
    let top = TopDenied::merge([counted.to_public()], 2);
    let first = top
        .offenders
        .iter()
        .map(|one| (one.name.as_deref(), one.count, one.error));
    let expected = [(Some("1"), 440, 0), (Some("2"), 450, 400)];
    assert_eq!(first.collect::<Vec<_>>(), expected);
    // The most that a caller that is cut can have been denied.
    assert_eq!(top.unlisted, 400);
}

/// Denies a caller by a policy.
fn deny(offenders: &Offenders, policy: &Name, caller: u64) {
    let key = Key::from(caller);
    let callers = [offenders.caller(policy, false, Some(Cow::Borrowed(&key)))];
    let reason = DenialReason::QuotaExceeded;
    let details = || RecentDenial::new(reason);
    offenders.record(reason, None, &callers, details, |caller, key| {
        Known::new(caller, key, None, None)
    });
}

/// Whichever threads write and read at once, no denial is counted twice, and none is forgotten.
#[test]
fn each_denial_is_counted_or_missed() {
    const THREADS: u64 = 6;
    const TIMES: u64 = 2_000;

    let (offenders, policy) = (Offenders::new(None), Name::new("api").unwrap());
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for own in 0..THREADS {
            let (offenders, policy, start) = (&offenders, &policy, &start);
            scope.spawn(move || {
                start.wait();
                for time in 0..TIMES {
                    // New callers and known ones.
                    deny(offenders, policy, if time % 2 == 0 { own } else { time });
                    if time % 100 == 0 {
                        offenders.top(1);
                    }
                }
            });
        }
    });
    let top = offenders.top(usize::MAX);
    assert_eq!(top.total + top.missed, THREADS * TIMES);
    // A reader that has the lock takes no denial from those that find it free later.
    let held = offenders.lists.lock().unwrap();
    deny(&offenders, &policy, 1);
    drop(held);
    deny(&offenders, &policy, 1);
    let later = offenders.top(usize::MAX);
    assert_eq!((later.total, later.missed), (top.total + 1, top.missed + 1));
}
