//! A line is settled after each event, whatever came before.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    task::Wake,
    time::Duration,
};

use tokio::time::{Instant, advance};

use super::{
    sequence::{NONE, Sequences},
    *,
};
use crate::util::split_mix::SplitMix64;

/// What happens besides coming, leaving and refunding back.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    time_passes: bool,
    bucket_is_reset: bool,
}

/// On its way back, and what came of it, where the bucket was asked.
struct Given {
    free: TailRefund,
    level_ns: Option<u64>,
}

/// Places are used again, numbers are not.
struct Numbered {
    turn: Reservation,
    number: u64,
}

/// A bucket in which others, whom nobody here knows, stand too.
struct Model {
    world: World,
    bucket: Bucket,
    begin: Instant,
    full_at_ns: u64,
    turns: Vec<Numbered>,
    numbers: u64,
    given: Vec<Given>,
    /// Of those who stand here, and what they left, while no time passes.
    known_ns: u64,
}

impl Model {
    fn new(world: World, seed: u64) -> Self {
        let World {
            time_passes,
            bucket_is_reset,
        } = world;
        let name = format!("time {time_passes}, resets {bucket_is_reset}");
        let name = Name::new(&name).expect("a name");
        Self {
            world,
            bucket: (0, name, 'q', Key::from(seed)),
            begin: Instant::now(),
            // No turn comes by itself.
            full_at_ns: if world.time_passes {
                0
            } else {
                3_600_000_000_000
            },
            turns: Vec::new(),
            numbers: 0,
            given: Vec::new(),
            known_ns: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn moment(&self, start_ns: u64) -> Instant {
        self.begin + Duration::from_nanos(start_ns)
    }

    fn expect(&mut self, free: Option<TailRefund>) {
        let now = Instant::now();
        if let Some(line) = RESERVATIONS.find(&self.bucket) {
            let line = &line.lock().queue;
            let passed = line.gaps.values().find(|gap| gap.last_moment <= now);
            assert_eq!(passed, None, "as if used, all of it");
            let first_ns = free.as_ref().map(|free| free.gap.span.start_ns);
            let mut places = line.spans().into_iter();
            let is_behind = |place: Span| Some(place.start_ns) >= first_ns;
            assert!(first_ns.is_none() || !places.any(is_behind), "not the last");
        }
        let free = free.map(|free| Given {
            free,
            level_ns: None,
        });
        self.given.extend(free);
    }

    fn come(&mut self, level_ns: u64) {
        self.full_at_ns = self.full_at_ns.max(self.now_ns());
        let moment = self.moment(self.full_at_ns);
        let start_ns = self.full_at_ns;
        self.full_at_ns += level_ns;
        // What was given back, and not told yet, is somebody's again.
        let gaps = self.given.iter().map(|given| given.free.gap);
        let again = gaps.filter(|gap| {
            let span = gap.span;
            self.is_hole(*gap) && span.start_ns < self.full_at_ns && start_ns < span.end_ns
        });
        self.known_ns -= again.map(|gap| gap.span.length_ns()).sum::<u64>();
        let (turn, free) = Reservation::new(&self.bucket, moment, self.full_at_ns, level_ns);
        self.numbers += 1;
        let number = self.numbers;
        self.turns.push(Numbered { turn, number });
        self.known_ns += level_ns;
        self.expect(free);
    }

    fn leave(&mut self, at: usize) {
        let Numbered { turn, .. } = self.turns.swap_remove(at);
        let free = turn.leave();
        self.expect(free);
    }

    /// The bucket gives back what is at its end, and still to come.
    fn give(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let given = &mut self.given[at];
        let span = given.free.gap.span;
        if given.level_ns.is_none() {
            let is_last = span.end_ns == self.full_at_ns;
            let level_ns = span.end_ns.saturating_sub(span.start_ns.max(now_ns));
            let level_ns = if is_last { level_ns } else { 0 };
            self.full_at_ns -= level_ns;
            given.level_ns = Some(level_ns);
        }
    }

    fn tell(&mut self, at: usize, is_lost: bool) {
        self.give(at);
        let Given { free, level_ns } = self.given.swap_remove(at);
        let told = level_ns.filter(|_| !is_lost);
        if told != Some(0) && self.is_hole(free.gap) {
            self.known_ns -= free.gap.span.length_ns();
        }
        let next = free.refunded(told);
        self.expect(next);
    }

    /// The runtime that it was to be given back in is gone.
    fn forget(&mut self, at: usize) {
        let Given { free, .. } = self.given.swap_remove(at);
        let gap = free.gap;
        if self.is_hole(gap) {
            self.known_ns -= gap.span.length_ns();
        }
        drop(free);
        assert!(!self.is_hole(gap));
        let line = RESERVATIONS.find(&self.bucket);
        assert!(line.is_none_or(|line| line.lock().queue.refunding != Some(gap)));
    }

    fn is_hole(&self, gap: Gap) -> bool {
        let line = RESERVATIONS.find(&self.bucket);
        line.is_some_and(|line| line.lock().queue.gaps.values().any(|other| *other == gap))
    }

    /// Those whose turn has come go on.
    async fn pass(&mut self, by_ns: u64) {
        advance(Duration::from_nanos(by_ns)).await;
        self.turns.retain(|one| !one.turn.has_come());
    }

    /// Of each who waits.
    fn moments(&self) -> HashMap<u64, Instant> {
        let moment = |one: &Numbered| (one.number, one.turn.moment(&one.turn.queue.lock().queue));
        self.turns.iter().map(moment).collect()
    }

    fn assert_settled(&self, before: &HashMap<u64, Instant>) {
        let now = Instant::now();
        for (place, moment) in self.moments() {
            let moved = before.get(&place).filter(|before| **before != moment);
            assert!(moved.is_none() || moment > now, "to what is as if used");
        }
        let Some(line) = RESERVATIONS.find(&self.bucket) else {
            assert_eq!(self.turns.len(), 0);
            return;
        };
        let line = &line.lock().queue;
        let places = line.spans();
        assert_eq!(places.len(), self.turns.len());
        let free = line
            .gaps
            .values()
            .filter(|gap| line.refunding != Some(**gap));
        for gap in free.filter(|gap| gap.moment > now) {
            let end_ns = gap.span.end_ns;
            let behind = places.iter().find(|place| place.start_ns == end_ns);
            assert!(behind.is_none(), "{gap:?} has somebody behind it");
            let mut others = line.gaps.values();
            let next = others.find(|other| other.span.start_ns == end_ns);
            // It may be on its way back by now.
            let is_apart = next.is_none() || next.copied() == line.refunding;
            assert!(is_apart || self.world.bucket_is_reset, "{gap:?}");
        }
        if self.world.bucket_is_reset {
            return;
        }
        for one in &self.turns {
            let start_ns = line.places.locate(one.turn.place).1;
            assert_eq!(one.turn.moment(line), self.moment(start_ns));
        }
        let mut spans = places;
        spans.extend(line.gaps.values().map(|gap| gap.span));
        spans.sort_by_key(|span| span.start_ns);
        for pair in spans.windows(2) {
            assert!(pair[0].end_ns <= pair[1].start_ns, "had twice: {pair:?}");
        }
        if !self.world.time_passes {
            let known_ns: u64 = spans.iter().map(|span| span.length_ns()).sum();
            assert_eq!(known_ns, self.known_ns);
        }
    }
}

async fn walk(world: World, seed: u64) {
    let random = &mut SplitMix64(seed);
    let mut model = Model::new(world, seed);
    for _ in 0..150 {
        let before = model.moments();
        let some_given = random.below(model.given.len().max(1) as u64) as usize;
        match random.below(12) {
            0..=3 => model.come(1_000 * (1 + random.below(3))),
            // Another process's caller.
            4 => model.full_at_ns += 1_000 * random.below(3),
            5..=6 if !model.turns.is_empty() => {
                let at = random.below(model.turns.len() as u64);
                model.leave(at as usize);
            }
            7 if !model.given.is_empty() => model.give(some_given),
            8..=9 if !model.given.is_empty() => {
                model.tell(some_given, random.below(4) == 0);
            }
            10 if !model.given.is_empty() => model.forget(some_given),
            11 if world.bucket_is_reset && random.below(4) == 0 => {
                model.full_at_ns -= random.below(4_000).min(model.full_at_ns);
            }
            11 if world.time_passes => model.pass(random.below(2_000)).await,
            _ => {}
        }
        model.assert_settled(&before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_is_settled_after_each_event() {
    for time_passes in [false, true] {
        for bucket_is_reset in [false, true] {
            let world = World {
                time_passes,
                bucket_is_reset,
            };
            for seed in 0..300 {
                walk(world, seed).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_leave_one_by_one_leave_nothing() {
    let mut model = Model::new(World::default(), 1_000);
    let empty_at_ns = model.full_at_ns;
    for _ in 0..300 {
        model.come(1_000);
    }
    while !model.turns.is_empty() {
        let before = model.moments();
        model.leave(0);
        model.assert_settled(&before);
    }
    while !model.given.is_empty() {
        model.tell(0, false);
    }
    assert_eq!((model.known_ns, model.full_at_ns), (0, empty_at_ns));
    assert!(RESERVATIONS.find(&model.bucket).is_none());
}

/// A root, where its first item starts, and all items with their lengths.
type List = (Id, u64, Vec<(Id, u64)>);

/// Items come, leave, and are split and joined at random: as those of a list.
#[test]
fn a_sequence_agrees_with_a_list() {
    let mut random = SplitMix64(7);
    for _ in 0..50 {
        let mut sequences = Sequences::default();
        let mut lists: Vec<List> = Vec::new();
        for _ in 0..300 {
            let at = random.below(lists.len().max(1) as u64) as usize;
            match random.below(9) {
                0..=3 => {
                    let (start, length) = (random.below(1_000), 1 + random.below(9));
                    let item = sequences.add(start, length);
                    lists.push((item, start, vec![(item, length)]));
                }
                4 | 5 if lists.len() > 1 => {
                    let (behind, _, mut items) = lists.swap_remove(at);
                    let at = random.below(lists.len() as u64) as usize;
                    let (root, _, all) = &mut lists[at];
                    *root = sequences.join(*root, behind);
                    all.append(&mut items);
                }
                6 if !lists.is_empty() => {
                    let (_, start, mut items) = lists.swap_remove(at);
                    let item = random.below(items.len() as u64) as usize;
                    let root = sequences.close_up(items.remove(item).0);
                    assert_eq!(root == NONE, items.is_empty());
                    if root != NONE {
                        lists.push((root, start, items));
                    }
                }
                kind if !lists.is_empty() => {
                    let (_, start, mut items) = lists.swap_remove(at);
                    let item = random.below(items.len() as u64) as usize;
                    let (before, behind) = if kind == 7 {
                        sequences.split_before(items[item].0)
                    } else {
                        sequences.remove(items[item].0)
                    };
                    let mut rest = items.split_off(item);
                    let middle: u64 = items.iter().map(|(_, length)| length).sum();
                    let mut rest_start = start + middle;
                    if kind != 7 {
                        rest_start += rest.remove(0).1;
                    }
                    for (root, start, items) in [(before, start, items), (behind, rest_start, rest)]
                    {
                        assert_eq!(root == NONE, items.is_empty());
                        if root != NONE {
                            lists.push((root, start, items));
                        }
                    }
                }
                _ => {}
            }
            let count: usize = lists.iter().map(|(.., items)| items.len()).sum();
            assert_eq!(sequences.len(), count);
            for (root, start, items) in &lists {
                let mut at = *start;
                for (item, length) in items {
                    assert_eq!(sequences.locate(*item), (*root, at));
                    assert_eq!(sequences.starting_at(*root, at), Some(*item));
                    assert_eq!(sequences.length(*item), *length);
                    at += length;
                }
                assert_eq!(sequences.sum(*root), at - start);
                assert_eq!(sequences.first(*root), items[0].0);
                assert_eq!(sequences.last(*root), items[items.len() - 1].0);
            }
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each is woken as soon as it starts before where it said, and no other is.
#[test]
fn a_sequence_wakes_exactly_those_who_start_before_they_said() {
    let mut random = SplitMix64(8);
    for _ in 0..100 {
        let mut sequences = Sequences::default();
        let mut root = NONE;
        let mut items = Vec::new();
        for _ in 0..50 {
            let item = sequences.add(0, 1 + random.below(9));
            root = sequences.join(root, item);
            let start = sequences.locate(item).1;
            let below = start.saturating_sub(random.below(60));
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            sequences.wake_below(item, below, &Waker::from(Arc::clone(&flag)));
            items.push((item, below, flag));
        }
        while !items.is_empty() {
            let at = random.below(items.len() as u64) as usize;
            root = sequences.close_up(items.remove(at).0);
            let mut woken = Vec::new();
            sequences.wake(root, &mut woken);
            wake(woken);
            for (item, below, flag) in &items {
                let is_before = sequences.locate(*item).1 < *below;
                assert_eq!(flag.0.load(Ordering::Relaxed), is_before);
            }
        }
    }
}
