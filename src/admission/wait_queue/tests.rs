//! A queue is in order after each event, whatever came before.

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

/// What happens besides coming, leaving and refunding.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    time_passes: bool,
    bucket_is_reset: bool,
}

/// A refund under way, and its result once the bucket has executed it.
struct Pending {
    tail: TailRefund,
    level_ns: Option<u64>,
}

/// A waiter. Its place may be used again after it left, its number is not.
struct Waiter {
    reservation: Reservation,
    number: u64,
}

/// A bucket with waiters of this process and, unknown here, of others.
struct Model {
    world: World,
    bucket: Bucket,
    begin: Instant,
    full_at_ns: u64,
    waiters: Vec<Waiter>,
    numbers: u64,
    pending: Vec<Pending>,
    /// The sum of this process's places and gaps, while no time passes.
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
            // So late that no moment comes by itself.
            full_at_ns: if world.time_passes {
                0
            } else {
                3_600_000_000_000
            },
            waiters: Vec::new(),
            numbers: 0,
            pending: Vec::new(),
            known_ns: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn moment(&self, start_ns: u64) -> Instant {
        self.begin + Duration::from_nanos(start_ns)
    }

    /// Checks a refund that the queue returned, and adds it to those under way.
    fn begin_refund(&mut self, tail: Option<TailRefund>) {
        let now = Instant::now();
        if let Some(queue) = RESERVATIONS.find(&self.bucket) {
            let queue = &queue.lock().queue;
            let passed = queue.gaps.values().find(|gap| gap.last_moment <= now);
            assert_eq!(passed, None, "a gap that counts as used in full");
            let first_ns = tail.as_ref().map(|tail| tail.gap.span.start_ns);
            let mut places = queue.spans().into_iter();
            let is_behind = |place: Span| Some(place.start_ns) >= first_ns;
            assert!(
                first_ns.is_none() || !places.any(is_behind),
                "a place lies behind the refunded gap"
            );
        }
        let pending = tail.map(|tail| Pending {
            tail,
            level_ns: None,
        });
        self.pending.extend(pending);
    }

    fn come(&mut self, level_ns: u64) {
        self.full_at_ns = self.full_at_ns.max(self.now_ns());
        let moment = self.moment(self.full_at_ns);
        let start_ns = self.full_at_ns;
        self.full_at_ns += level_ns;
        // Units that were refunded, and whose result is not known here yet, are taken again.
        let gaps = self.pending.iter().map(|pending| pending.tail.gap);
        let again = gaps.filter(|gap| {
            let span = gap.span;
            self.has_gap(*gap) && span.start_ns < self.full_at_ns && start_ns < span.end_ns
        });
        self.known_ns -= again.map(|gap| gap.span.length_ns()).sum::<u64>();
        let (reservation, tail) = Reservation::new(&self.bucket, moment, self.full_at_ns, level_ns);
        self.numbers += 1;
        let number = self.numbers;
        self.waiters.push(Waiter {
            reservation,
            number,
        });
        self.known_ns += level_ns;
        self.begin_refund(tail);
    }

    fn leave(&mut self, index: usize) {
        let Waiter { reservation, .. } = self.waiters.swap_remove(index);
        let tail = reservation.leave();
        self.begin_refund(tail);
    }

    /// Lets the bucket refund what is at its end and still to come.
    fn execute(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let pending = &mut self.pending[index];
        let span = pending.tail.gap.span;
        if pending.level_ns.is_none() {
            let is_last = span.end_ns == self.full_at_ns;
            let level_ns = span.end_ns.saturating_sub(span.start_ns.max(now_ns));
            let level_ns = if is_last { level_ns } else { 0 };
            self.full_at_ns -= level_ns;
            pending.level_ns = Some(level_ns);
        }
    }

    /// Reports the result of a refund to the queue, unless the reply is lost.
    fn end_refund(&mut self, index: usize, is_lost: bool) {
        self.execute(index);
        let Pending { tail, level_ns } = self.pending.swap_remove(index);
        let reported = level_ns.filter(|_| !is_lost);
        if reported != Some(0) && self.has_gap(tail.gap) {
            self.known_ns -= tail.gap.span.length_ns();
        }
        let next = tail.refunded(reported);
        self.begin_refund(next);
    }

    /// Drops a refund, as when its runtime ends.
    fn drop_refund(&mut self, index: usize) {
        let Pending { tail, .. } = self.pending.swap_remove(index);
        let gap = tail.gap;
        if self.has_gap(gap) {
            self.known_ns -= gap.span.length_ns();
        }
        drop(tail);
        assert!(!self.has_gap(gap));
        let queue = RESERVATIONS.find(&self.bucket);
        assert!(queue.is_none_or(|queue| queue.lock().queue.refunding != Some(gap)));
    }

    fn has_gap(&self, gap: Gap) -> bool {
        let queue = RESERVATIONS.find(&self.bucket);
        queue.is_some_and(|queue| queue.lock().queue.gaps.values().any(|other| *other == gap))
    }

    /// Lets time pass. Waiters whose moment has come go on.
    async fn pass(&mut self, by_ns: u64) {
        advance(Duration::from_nanos(by_ns)).await;
        self.waiters.retain(|waiter| !waiter.reservation.has_come());
    }

    /// Returns the moment of each waiter.
    fn moments(&self) -> HashMap<u64, Instant> {
        let moment = |waiter: &Waiter| {
            let Waiter {
                reservation,
                number,
            } = waiter;
            (*number, reservation.moment(&reservation.queue.lock().queue))
        };
        self.waiters.iter().map(moment).collect()
    }

    /// Returns the moment of each waiter.
    fn assert_settled(&self, before: &HashMap<u64, Instant>) -> HashMap<u64, Instant> {
        let now = Instant::now();
        let moments = self.moments();
        for (place, moment) in &moments {
            let moved = before.get(place).filter(|before| *before != moment);
            assert!(
                moved.is_none() || *moment > now,
                "moved to a moment that has passed"
            );
        }
        let Some(queue) = RESERVATIONS.find(&self.bucket) else {
            assert_eq!(self.waiters.len(), 0);
            return moments;
        };
        let queue = &queue.lock().queue;
        let places = queue.spans();
        assert_eq!(places.len(), self.waiters.len());
        let free = queue
            .gaps
            .values()
            .filter(|gap| queue.refunding != Some(**gap));
        for gap in free.filter(|gap| gap.moment > now) {
            let end_ns = gap.span.end_ns;
            let behind = places.iter().find(|place| place.start_ns == end_ns);
            assert!(behind.is_none(), "a place lies right behind {gap:?}");
            let mut others = queue.gaps.values();
            let next = others.find(|other| other.span.start_ns == end_ns);
            // The next gap may be under refund by now.
            let is_apart = next.is_none() || next.copied() == queue.refunding;
            assert!(is_apart || self.world.bucket_is_reset, "{gap:?}");
        }
        if self.world.bucket_is_reset {
            return moments;
        }
        for Waiter { reservation, .. } in &self.waiters {
            let start_ns = queue.places.locate(reservation.place).1;
            assert_eq!(reservation.moment(queue), self.moment(start_ns));
        }
        let mut spans = places;
        spans.extend(queue.gaps.values().map(|gap| gap.span));
        spans.sort_by_key(|span| span.start_ns);
        for pair in spans.windows(2) {
            assert!(
                pair[0].end_ns <= pair[1].start_ns,
                "granted twice: {pair:?}"
            );
        }
        if !self.world.time_passes {
            let known_ns: u64 = spans.iter().map(|span| span.length_ns()).sum();
            assert_eq!(known_ns, self.known_ns);
        }
        moments
    }
}

async fn walk(world: World, seed: u64) {
    let random = &mut SplitMix64(seed);
    let mut model = Model::new(world, seed);
    let mut before = model.moments();
    for _ in 0..150 {
        let some_refund = random.below(model.pending.len().max(1) as u64) as usize;
        match random.below(12) {
            0..=3 => model.come(1_000 * (1 + random.below(3))),
            // A caller of another process.
            4 => model.full_at_ns += 1_000 * random.below(3),
            5..=6 if !model.waiters.is_empty() => {
                let index = random.below(model.waiters.len() as u64);
                model.leave(index as usize);
            }
            7 if !model.pending.is_empty() => model.execute(some_refund),
            8..=9 if !model.pending.is_empty() => {
                model.end_refund(some_refund, random.below(4) == 0);
            }
            10 if !model.pending.is_empty() => model.drop_refund(some_refund),
            11 if world.bucket_is_reset && random.below(4) == 0 => {
                model.full_at_ns -= random.below(4_000).min(model.full_at_ns);
            }
            11 if world.time_passes => model.pass(random.below(2_000)).await,
            _ => {}
        }
        before = model.assert_settled(&before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_in_order_after_each_event() {
    for time_passes in [false, true] {
        for bucket_is_reset in [false, true] {
            let world = World {
                time_passes,
                bucket_is_reset,
            };
            for seed in 0..150 {
                walk(world, seed).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_empty_after_all_waiters_left_one_by_one() {
    let mut model = Model::new(World::default(), 1_000);
    let empty_at_ns = model.full_at_ns;
    for _ in 0..300 {
        model.come(1_000);
    }
    while !model.waiters.is_empty() {
        let before = model.moments();
        model.leave(0);
        model.assert_settled(&before);
    }
    while !model.pending.is_empty() {
        model.end_refund(0, false);
    }
    assert_eq!((model.known_ns, model.full_at_ns), (0, empty_at_ns));
    assert!(RESERVATIONS.find(&model.bucket).is_none());
}

/// Each caller that leaves a crowd goes up a flat tree, and passes few gaps. So the work of all
/// grows as their number, and not as its square.
#[tokio::test(start_paused = true)]
async fn a_crowd_is_a_flat_tree_in_whatever_order_it_leaves() {
    const CROWD: u64 = 10_000;
    let begin = Instant::now() + Duration::from_secs(3_600);
    let moment = |start_ns| begin + Duration::from_nanos(start_ns);
    let mut random = SplitMix64(9);
    for (order, was_reset) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
        let mut queue = ReservationQueue::default();
        let mut places: Vec<_> = (0..CROWD)
            .map(|number| {
                // After a reset, the moments start over.
                let number = if was_reset {
                    number % (CROWD / 2)
                } else {
                    number
                };
                let (start_ns, end_ns) = (1_000 * number, 1_000 * (number + 1));
                queue.enter(Span { start_ns, end_ns }).0
            })
            .collect();
        match order {
            0 => places.reverse(),
            1 => {}
            _ => {
                for at in (1..places.len()).rev() {
                    places.swap(at, random.below(at as u64 + 1) as usize);
                }
            }
        }
        let (mut deepest, mut most_gaps) = (0, 0);
        while let Some(place) = places.pop() {
            deepest = deepest.max(queue.places.depth(place));
            queue.leave(place, moment);
            if let Some(gap) = queue.next_refund() {
                queue.tried(gap, false);
            }
            most_gaps = most_gaps.max(queue.gaps.len());
        }
        let what = format!("order {order}, reset {was_reset}");
        assert!((10..100).contains(&deepest), "{what}: {deepest}");
        assert!(most_gaps <= 33, "{what}: {most_gaps}");
        assert_eq!(queue.places.len(), 0, "{what}");
    }
}

/// A root, where its first item starts, and all items with their lengths.
type List = (Id, u64, Vec<(Id, u64)>);

/// Adds, removes, splits and joins items at random, in sequences and in lists.
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

/// Each item is woken as soon as it starts before its bound, and no other is.
#[test]
fn a_sequence_wakes_exactly_the_items_before_their_bounds() {
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
