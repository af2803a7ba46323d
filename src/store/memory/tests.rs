#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    entry::{Entry, Id},
    run::work,
    shard::Shard,
    shards::Shards,
};
use crate::{SystemClock, quota::rules::State, random::SplitMix64 as Random, store::Slot};

impl Random {
    fn id(&mut self) -> Id {
        (Id::from(self.next()) << 64 | Id::from(self.next())) & !1
    }
}

fn slot(words: &[u64], drained_at_us: u64) -> Slot {
    Slot {
        state: Some(State::from_slice(words)),
        drained_at_us: Some(drained_at_us),
    }
}

fn words(slot: &Slot) -> Option<&[u64]> {
    slot.state.as_deref()
}

#[test]
fn an_entry_gives_back_what_was_put_in() {
    let numbers = [0, 1, 999, 1 << 53, 1 << 60, u64::MAX / 1_000, u64::MAX];
    let mut entry = Entry::new(2, slot(&[1], 1)).expect("something to keep");
    for first in numbers {
        for second in numbers {
            for drained_at_us in numbers.into_iter().chain([second.saturating_mul(1_000)]) {
                for state in [
                    &[][..],
                    &[first],
                    &[first, second],
                    &[first, second, 7],
                    &[first, second, 7, 8, 9],
                ] {
                    entry.put(slot(state, drained_at_us));
                    let taken = entry.take();
                    assert_eq!(words(&taken), Some(state));
                    // Taken and put back as it was.
                    entry.put(taken);
                    assert_eq!(words(&entry.take()), Some(state));
                    entry.put(slot(state, drained_at_us));
                    // All that no clock reaches is the same.
                    let never = 1 << 60;
                    assert_eq!(entry.drained_at_us().min(never), drained_at_us.min(never));
                }
            }
        }
    }
}

/// What a shard should hold: words, and when they are drained.
type Model = BTreeMap<Id, (Vec<u64>, u64)>;

fn take(shard: &mut Shard, id: Id) -> Slot {
    let found = shard.find(id).ok();
    let bucket = found.and_then(|at| shard.get_mut(id, at));
    bucket.map(Entry::take).unwrap_or_default()
}

/// Looks at one bucket. Only what is drained may have gone.
fn assert_holds_one(shard: &mut Shard, model: &mut Model, id: Id, now_us: u64) {
    let slot = take(shard, id);
    match (words(&slot), model.get(&id)) {
        (None, Some((_, drained_at_us))) => {
            assert!(*drained_at_us <= now_us, "{id:x} was forgotten");
            model.remove(&id);
        }
        (found, known) => assert_eq!(found, known.map(|(stored, _)| &stored[..]), "{id:x}"),
    }
    shard.put(id, 0, slot);
}

fn assert_holds_all(shard: &mut Shard, model: &mut Model, now_us: u64) {
    for id in model.keys().copied().collect::<Vec<_>>() {
        assert_holds_one(shard, model, id, now_us);
    }
    assert_eq!(shard.len(), model.len());
}

/// Callers come and go, in numbers that rise and fall, among them some whose
/// ids are close together, at the end of all places, too.
#[test]
fn a_shard_holds_what_a_map_does() {
    let mut random = Random(11);
    let mut shard = Shard::new(usize::MAX);
    let mut model = Model::new();
    let mut known: Vec<Id> = Vec::new();
    let mut now_us = 1;
    for step in 0..90_000_u64 {
        let is_rising = step / 15_000 % 2 == 0;
        let id = match random.below(10) {
            0 if !known.is_empty() => known[random.below(known.len() as u64) as usize],
            1 => (Id::MAX - 1) - 2 * Id::from(random.below(300)),
            2 => (0xabcd << 112) + 2 * Id::from(random.below(300)),
            _ => random.id(),
        };
        now_us += random.below(3);
        shard.tidy(now_us);
        assert_holds_one(&mut shard, &mut model, id, now_us);
        match random.below(8) {
            0 => {
                shard.remove(id);
                model.remove(&id);
            }
            _ if is_rising || model.contains_key(&id) => {
                let stored: Vec<u64> = (0..1 + random.below(4)).map(|_| random.next()).collect();
                let lives_us = if is_rising { 40_000 } else { 100 };
                let drained_at_us = now_us + random.below(lives_us);
                take(&mut shard, id);
                // Where it stood, or anywhere.
                let at = shard.find(id).unwrap_or_else(|_| random.below(9) as usize);
                shard.put(id, at, slot(&stored, drained_at_us));
                model.insert(id, (stored, drained_at_us));
                known.push(id);
            }
            _ => {}
        }
        if step % 5_000 == 0 {
            assert_holds_all(&mut shard, &mut model, now_us);
        }
        if step % 15_000 == 14_999 {
            // A sweep becomes due, and is done with.
            now_us += 6_000_000;
            for _ in 0..2_000 {
                shard.tidy(now_us);
            }
            model.retain(|_, (_, drained_at_us)| *drained_at_us > now_us);
            assert_holds_all(&mut shard, &mut model, now_us);
        }
    }
}

/// The most work that one check did: of filling a shard, sweeping it while
/// callers come, and filling it again.
fn most_work(buckets: u64) -> usize {
    let mut random = Random(buckets);
    let mut shard = Shard::new(usize::MAX);
    let mut most = 0;
    for round in 1..=3 {
        let now_us = round * 10_000_000;
        work::take();
        for _ in 0..buckets {
            shard.tidy(now_us);
            shard.put(random.id(), 0, slot(&[1], now_us + 1_000_000));
            most = most.max(work::take());
        }
        assert!(shard.len() as u64 >= buckets);
    }
    most
}

#[test]
fn no_check_does_work_that_grows_with_the_number_of_buckets() {
    let [few, many] = [1_000, 300_000].map(most_work);
    println!(
        "the most entries that one check looked at or moved: {few} of 1,000, {many} of 300,000"
    );
    // 256 places of a sweep or 32 moved, and those that stand in a row.
    assert!(many < 1_200, "{many}");
}

#[test]
fn a_sweep_is_done_with_after_as_many_checks_as_there_are_pages() {
    let mut random = Random(5);
    let mut shard = Shard::new(usize::MAX);
    for _ in 0..50_000 {
        shard.tidy(1);
        shard.put(random.id(), 0, slot(&[1], 1_000_000));
    }
    assert_eq!(shard.len(), 50_000);
    // 50,000 in at most 85,000 places.
    for _ in 0..85_000 / 256 {
        shard.tidy(10_000_000);
    }
    assert_eq!(shard.len(), 0);
}

#[test]
fn a_clock_put_back_stops_no_sweep() {
    let mut random = Random(7);
    let mut shard = Shard::new(usize::MAX);
    for _ in 0..5_000 {
        shard.tidy(1);
        shard.put(random.id(), 0, slot(&[1], 10));
    }
    for (now_us, checks) in [(1_000_000_000, 3), (1_000, 50)] {
        assert!(shard.len() > 0);
        for _ in 0..checks {
            shard.tidy(now_us);
        }
    }
    assert_eq!(shard.len(), 0);
}

fn shards() -> Shards {
    Shards::new(1_000_000, Arc::new(SystemClock::new()))
}

/// Callers that somebody chose: they differ in the last byte, or in a number.
#[test]
fn ids_are_spread_and_different_and_secret() {
    let (one, other) = (shards(), shards());
    let hash = (1, 2);
    let key = |number: u64| format!("caller-{number:08}");
    let ids = |shards: &Shards| -> Vec<Id> {
        let numbers = 0..100_000;
        numbers
            .map(|number| shards.hash(hash, b'b', key(number).as_bytes()))
            .collect()
    };
    let mut first = ids(&one);
    let mut counts = [0_u32; 64];
    let mut places = [0_u32; 64];
    for id in &first {
        assert_eq!(id & 1, 0, "an id is never that of a free place");
        counts[one.shard_of(*id)] += 1;
        places[(id >> 122) as usize] += 1;
    }
    // 1,562 in each, and 6 times the standard deviation.
    let is_even = |count: &u32| (1_325..1_800).contains(count);
    assert!(counts.iter().all(is_even), "{counts:?}");
    assert!(places.iter().all(is_even), "{places:?}");
    // Nobody who knows the ids of one process knows those of another.
    assert!(
        first
            .iter()
            .zip(ids(&other))
            .all(|(one, other)| *one != other)
    );
    // Another policy, another kind: another bucket.
    let of = |hash, kind| one.hash(hash, kind, b"caller");
    let different = [
        of((1, 2), b'b'),
        of((1, 3), b'b'),
        of((2, 2), b'b'),
        of((1, 2), b'l'),
    ];
    first.extend(different);
    let count = first.len();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), count);
}
