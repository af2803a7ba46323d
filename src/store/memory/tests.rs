#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    buckets::Buckets,
    entry::{BucketId, Entry, caller_id, is_cell},
    shard::Shard,
};
use crate::{
    clock::SystemClock, quota::arithmetic::State, store::BucketWords,
    util::split_mix::SplitMix64 as Random,
};

impl Random {
    fn id(&mut self) -> BucketId {
        caller_id(self.next())
    }
}

fn bucket(words: &[u64], drained_at_us: u64) -> BucketWords {
    BucketWords {
        state: Some(State::from_slice(words)),
        drained_at_us: Some(drained_at_us),
        ..BucketWords::default()
    }
}

fn words(bucket: &BucketWords) -> Option<&[u64]> {
    bucket.state.as_deref()
}

#[test]
fn an_entry_returns_the_words_that_were_put_in() {
    let numbers = [0, 1, 999, 1 << 53, 1 << 60, u64::MAX / 1_000, u64::MAX];
    let mut entry = Entry::new(2, &mut bucket(&[1], 1)).expect("something to keep");
    for first in numbers {
        for second in numbers {
            let derived = [second.saturating_mul(1_000), first.div_ceil(1_000)];
            for drained_at_us in numbers.into_iter().chain(derived) {
                for state in [
                    &[first][..],
                    &[first, second],
                    &[first, second, 7],
                    &[first, second, 7, 8, 9],
                ] {
                    entry.put(&mut bucket(state, drained_at_us));
                    let mut taken = entry.take_words();
                    assert_eq!(words(&taken), Some(state));
                    // Put back unchanged.
                    entry.put(&mut taken);
                    assert_eq!(words(&entry.take_words()), Some(state));
                    entry.put(&mut bucket(state, drained_at_us));
                    // All instants that no clock reaches are the same.
                    let never = 1 << 60;
                    assert_eq!(entry.drained_at_us().min(never), drained_at_us.min(never));
                }
            }
        }
    }
}

/// What a shard should hold: words, and when they are drained.
type Model = BTreeMap<BucketId, (Vec<u64>, u64)>;

/// Looks at one bucket, which may be missing only if it is drained.
fn assert_holds_one(shard: &mut Shard, model: &mut Model, id: BucketId, now_us: u64) {
    let mut bucket = shard.take(id);
    match (words(&bucket), model.get(&id)) {
        (None, Some((_, drained_at_us))) => {
            assert!(*drained_at_us <= now_us, "{id:x} was forgotten");
            model.remove(&id);
        }
        (found, known) => assert_eq!(found, known.map(|(stored, _)| &stored[..]), "{id:x}"),
    }
    shard.put(id, &mut bucket);
}

fn assert_holds_all(shard: &mut Shard, model: &mut Model, now_us: u64) {
    for id in model.keys().copied().collect::<Vec<_>>() {
        assert_holds_one(shard, model, id, now_us);
    }
    assert_eq!(shard.len(), model.len());
}

/// Callers come and go, in numbers that rise and fall. The ids of some differ only in
/// the bits that choose the place, or only in those that do not.
#[test]
fn a_shard_holds_the_same_buckets_as_a_map() {
    let mut random = Random(11);
    let mut shard = Shard::new(usize::MAX);
    let mut model = Model::new();
    let mut known: Vec<BucketId> = Vec::new();
    let mut now_us = 1;
    for step in 0..90_000_u64 {
        let is_rising = step / 15_000 % 2 == 0;
        let id = match random.below(10) {
            0 if !known.is_empty() => known[random.below(known.len() as u64) as usize],
            1 => caller_id(u64::MAX - random.below(300)),
            2 => 0xabcd << 32 | random.below(300) << 53,
            _ => random.id(),
        };
        now_us += random.below(3);
        shard.begin(now_us);
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
                shard.take(id);
                shard.put(id, &mut bucket(&stored, drained_at_us));
                model.insert(id, (stored, drained_at_us));
                known.push(id);
            }
            _ => {}
        }
        if step % 5_000 == 0 {
            assert_holds_all(&mut shard, &mut model, now_us);
        }
        if step % 15_000 == 14_999 {
            // A sweep becomes due.
            now_us += 6_000_000;
            shard.begin(now_us);
            model.retain(|_, (_, drained_at_us)| *drained_at_us > now_us);
            assert_holds_all(&mut shard, &mut model, now_us);
        }
    }
}

#[test]
fn a_shard_counts_callers_without_cells() {
    let mut random = Random(3);
    let mut shard = Shard::new(200);
    shard.begin(1);
    let cells: Vec<_> = (0..100)
        .map(|_| super::entry::cell_id(random.next()))
        .collect();
    for &cell in &cells {
        shard.put(cell, &mut bucket(&[1], 10_000_000));
    }
    for _ in 0..200 {
        assert!(!shard.is_full_with(0));
        shard.put(random.id(), &mut bucket(&[1], 20_000_000));
    }
    assert!(shard.is_full_with(0));
    for cell in &cells[..50] {
        shard.remove(*cell);
    }
    assert!(shard.is_full_with(0));
    // The other cells are drained.
    shard.begin(10_000_000);
    assert_eq!(shard.len(), 200);
    assert!(shard.is_full_with(0));
    shard.begin(20_000_000);
    assert_eq!(shard.len(), 0);
    assert!(!shard.is_full_with(199));
}

#[test]
fn a_full_shard_is_swept_after_50_ms_or_1_us_for_each_entry() {
    let mut random = Random(13);
    for (capacity, interval_us) in [(1_000, 50_000), (200_000, 200_000)] {
        let mut shard = Shard::new(capacity);
        shard.begin(1);
        for _ in 0..capacity {
            shard.put(random.id(), &mut bucket(&[1], 10));
        }
        shard.begin(interval_us);
        assert_eq!(shard.len(), capacity);
        shard.begin(interval_us + 1);
        assert_eq!(shard.len(), 0);
    }
}

#[test]
fn a_clock_set_back_delays_a_sweep_by_one_interval() {
    let mut random = Random(7);
    let mut shard = Shard::new(usize::MAX);
    shard.begin(1);
    shard.put(random.id(), &mut bucket(&[1], 1_000_000_000));
    // Swept at the later instant, then set back.
    for now_us in [900_000_000, 1_000] {
        shard.begin(now_us);
        assert_eq!(shard.len(), 1);
    }
    shard.put(random.id(), &mut bucket(&[1], 10));
    for (now_us, len) in [(4_900_000, 2), (5_100_000, 1)] {
        shard.begin(now_us);
        assert_eq!(shard.len(), len);
    }
}

/// The keys of these callers differ in their last digits.
#[test]
fn ids_are_spread_distinct_and_secret() {
    let buckets = || Buckets::new(1_000_000, Arc::new(SystemClock::new()));
    let (one, other) = (buckets(), buckets());
    let ids = |buckets: &Buckets| -> Vec<BucketId> {
        let key = |number| format!("caller-{number:08}");
        let hash = |number| buckets.hash((1, 2), b'b', key(number).as_bytes());
        (0..100_000).map(|number| caller_id(hash(number))).collect()
    };
    let mut first = ids(&one);
    let [mut shards, mut places, mut tags] = [[0_u32; 64]; 3];
    for id in &first {
        assert!(!is_cell(*id));
        shards[one.shard_of(*id)] += 1;
        places[(id % 64) as usize] += 1;
        tags[(id >> 58) as usize] += 1;
    }
    // 1,562 in each, and 6 times the standard deviation.
    let is_even = |count: &u32| (1_325..1_800).contains(count);
    for counts in [shards, places, tags] {
        assert!(counts.iter().all(is_even), "{counts:?}");
    }
    // The ids of one store do not reveal those of another.
    assert!(
        first
            .iter()
            .zip(ids(&other))
            .all(|(id, other)| *id != other)
    );
    // Another policy or another algorithm: another bucket.
    for (policy, kind) in [
        ((1, 2), b'b'),
        ((1, 3), b'b'),
        ((2, 2), b'b'),
        ((1, 2), b'l'),
    ] {
        first.push(caller_id(one.hash(policy, kind, b"caller")));
    }
    let count = first.len();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), count);
}
