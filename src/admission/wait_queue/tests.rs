//! Whatever callers of some processes do, no unit of a bucket is used twice, and no waiter is late.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use tokio::time::{Instant, advance};

use super::{
    reservations::{Reservation, TailRefund},
    *,
};
use crate::util::split_mix::SplitMix64;

/// What happens besides coming, leaving and refunding.
#[derive(Clone, Copy)]
struct World {
    /// The burst of a token bucket. `None`: a queue that paces.
    burst_ns: Option<u64>,
    has_other_processes: bool,
    has_costs: bool,
    is_reset: bool,
}

/// A refund under way, and its result once the bucket has executed it.
struct Pending {
    tail: TailRefund,
    level_ns: Option<u64>,
}

struct Waiter {
    reservation: Reservation,
    number: u64,
    level_ns: u64,
    /// The turn that the bucket gave it.
    turn_ns: u64,
}

/// A bucket with waiters of this process and, unknown here, of others.
struct Model {
    bucket: Bucket,
    burst_ns: Option<u64>,
    begin: Instant,
    full_at_ns: u64,
    waiters: Vec<Waiter>,
    numbers: u64,
    /// Callers whose answers are under way: their turns, where their units end, and their levels.
    answers: Vec<(u64, u64, u64)>,
    pending: Vec<Pending>,
    /// When each caller went on, and its level.
    used: Vec<(u64, u64)>,
}

impl Model {
    fn new(key: u64, burst_ns: Option<u64>) -> Self {
        let name = Name::new("queue").expect("a name");
        Self {
            bucket: (0, name, 'q', Key::from(key)),
            burst_ns,
            begin: Instant::now(),
            full_at_ns: 0,
            waiters: Vec::new(),
            numbers: 0,
            answers: Vec::new(),
            pending: Vec::new(),
            used: Vec::new(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Takes units. Returns when they are there.
    fn take(&mut self, level_ns: u64) -> u64 {
        let now_ns = self.now_ns();
        self.full_at_ns = self.full_at_ns.max(now_ns) + level_ns;
        let free_ns = self.burst_ns.unwrap_or(level_ns);
        now_ns.max(self.full_at_ns.saturating_sub(free_ns))
    }

    /// Lets a caller ask. It waits, or continues at once.
    fn ask(&mut self, level_ns: u64) {
        let turn_ns = self.take(level_ns);
        if turn_ns > self.now_ns() {
            self.answers.push((turn_ns, self.full_at_ns, level_ns));
        } else {
            self.used.push((turn_ns, level_ns));
        }
    }

    fn answer(&mut self, index: usize) {
        let (turn_ns, end_ns, level_ns) = self.answers.swap_remove(index);
        let latest = self.begin + Duration::from_nanos(turn_ns);
        let (reservation, tail) = Reservation::new(&self.bucket, latest, end_ns, level_ns);
        self.numbers += 1;
        self.waiters.push(Waiter {
            reservation,
            number: self.numbers,
            level_ns,
            turn_ns,
        });
        self.begin_refund(tail);
        self.go_on();
    }

    fn begin_refund(&mut self, tail: Option<TailRefund>) {
        let pending = tail.map(|tail| Pending {
            tail,
            level_ns: None,
        });
        self.pending.extend(pending);
    }

    fn leave(&mut self, index: usize) {
        let Waiter { reservation, .. } = self.waiters.swap_remove(index);
        let tail = reservation.leave();
        self.begin_refund(tail);
        self.go_on();
    }

    /// Lets the bucket refund what is at its end and still to come.
    fn execute(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let Pending { tail, level_ns } = &mut self.pending[index];
        if level_ns.is_none() {
            let is_last = tail.taken_at() == self.full_at_ns / 1_000;
            let left_ns = self.full_at_ns.saturating_sub(now_ns);
            let refunded_ns = if is_last {
                tail.level_ns().min(left_ns)
            } else {
                0
            };
            self.full_at_ns -= refunded_ns;
            *level_ns = Some(refunded_ns);
        }
    }

    /// Reports the result of a refund, unless the reply is lost.
    fn end_refund(&mut self, index: usize, is_lost: bool) {
        self.execute(index);
        let Pending { tail, level_ns } = self.pending.swap_remove(index);
        let next = tail.refunded(level_ns.filter(|_| !is_lost));
        self.begin_refund(next);
        self.go_on();
    }

    /// Removes the waiters whose turn has come by now.
    fn go_on(&mut self) {
        let now_ns = self.now_ns();
        let (come, waiters): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter| waiter.reservation.has_come());
        self.waiters = waiters;
        for Waiter {
            turn_ns, level_ns, ..
        } in come
        {
            // A late answer does not make its units those of a later instant.
            self.used.push((turn_ns.min(now_ns), level_ns));
        }
    }

    fn next_turn(&self) -> Option<Instant> {
        let sleeping = self.waiters.iter();
        sleeping
            .filter_map(|waiter| sleep(&waiter.reservation, Waker::noop()))
            .min()
    }

    /// Lets time pass, from turn to turn.
    async fn pass(&mut self, by_ns: u64) {
        let end = Instant::now() + Duration::from_nanos(by_ns);
        while let Some(turn) = self.next_turn().filter(|turn| *turn <= end) {
            advance(turn - Instant::now()).await;
            self.go_on();
        }
        advance(end - Instant::now()).await;
        let now_ns = self.now_ns();
        let late = self.waiters.iter().find(|waiter| waiter.turn_ns <= now_ns);
        assert!(late.is_none(), "a waiter is late");
    }

    /// Checks that a bucket which refills by the quota has units for each caller that was admitted.
    fn assert_used_once(&mut self) {
        self.used.sort_unstable();
        let mut full_at_ns = 0;
        for (at_ns, level_ns) in &self.used {
            full_at_ns = full_at_ns.max(*at_ns) + level_ns;
            let most_ns = at_ns + self.burst_ns.unwrap_or(*level_ns);
            assert!(full_at_ns <= most_ns, "units are used twice at {at_ns}");
        }
    }
}

async fn walk(world: World, seed: u64) {
    let random = &mut SplitMix64(seed);
    let mut model = Model::new(seed, world.burst_ns);
    for _ in 0..300 {
        let has_one_line = !world.is_reset && !world.has_costs;
        assert!(
            !has_one_line || model.pending.len() < 2,
            "two refunds at a time"
        );
        let some_answer = random.below(model.answers.len().max(1) as u64) as usize;
        let some_refund = random.below(model.pending.len().max(1) as u64) as usize;
        let units = if world.has_costs { 3 } else { 1 };
        let level_ns = 1_000 * (1 + random.below(units));
        match random.below(14) {
            0..=2 => model.ask(level_ns),
            3 if world.has_other_processes => {
                let level_ns = 500 * (2 + random.below(5));
                let turn_ns = model.take(level_ns);
                model.used.push((turn_ns, level_ns));
            }
            3..=5 if !model.answers.is_empty() => model.answer(some_answer),
            6..=8 if !model.waiters.is_empty() => {
                let index = random.below(model.waiters.len() as u64);
                model.leave(index as usize);
            }
            9 if !model.pending.is_empty() => model.execute(some_refund),
            10 if !model.pending.is_empty() => {
                model.end_refund(some_refund, random.below(4) == 0);
            }
            11 if world.is_reset && random.below(4) == 0 => {
                model.full_at_ns -= random.below(9_000).min(model.full_at_ns);
            }
            12 if !model.pending.is_empty() && random.below(4) == 0 => {
                drop(model.pending.swap_remove(some_refund));
            }
            13 => model.pass(random.below(3_000)).await,
            _ => {}
        }
    }
    while !model.answers.is_empty() {
        model.answer(0);
    }
    model.pass(1_000_000).await;
    assert!(model.waiters.is_empty());
    if !world.is_reset {
        model.assert_used_once();
    }
    drop(model.pending);
    assert!(!reservations::LINES.knows(&model.bucket));
}

#[tokio::test(start_paused = true)]
async fn no_unit_is_used_twice_and_no_waiter_is_late() {
    for bits in 0..16_u64 {
        let world = World {
            burst_ns: (bits & 8 > 0).then_some(3_000),
            has_other_processes: bits & 1 > 0,
            has_costs: bits & 2 > 0,
            is_reset: bits & 4 > 0,
        };
        for seed in 0..40 {
            walk(world, 1_000 * bits + seed).await;
        }
    }
}

/// In one process, waiters that stay use the first units, in order, and all others are refunded.
#[tokio::test(start_paused = true)]
async fn waiters_move_up_in_order_and_the_rest_is_refunded() {
    for seed in 0..100 {
        let random = &mut SplitMix64(seed);
        let mut model = Model::new(100_000 + seed, None);
        // The first one does not wait.
        let begin_ns = model.take(1_000_000) + 1_000_000;
        for _ in 0..300 {
            if random.below(3) < 2 {
                model.ask(1_000 * (1 + random.below(3)));
                model.answer(0);
            } else if !model.waiters.is_empty() {
                let index = random.below(model.waiters.len() as u64);
                model.leave(index as usize);
            }
            while !model.pending.is_empty() {
                model.end_refund(0, false);
            }
        }
        model.waiters.sort_by_key(|waiter| waiter.number);
        let levels: Vec<_> = model.waiters.iter().map(|waiter| waiter.level_ns).collect();
        assert_eq!(model.full_at_ns, begin_ns + levels.iter().sum::<u64>());
        let mut turn_ns = begin_ns;
        for level_ns in levels {
            let turn = model.begin + Duration::from_nanos(turn_ns);
            advance(turn - Instant::now() - Duration::from_nanos(1)).await;
            assert!(!model.waiters[0].reservation.has_come(), "early");
            advance(Duration::from_nanos(1)).await;
            assert!(model.waiters.remove(0).reservation.has_come(), "late");
            turn_ns += level_ns;
        }
    }
}

fn sleep(reservation: &Reservation, waker: &Waker) -> Option<Instant> {
    let Reservation { queue, ticket, .. } = reservation;
    queue.change(|line| line.sleep(*ticket, waker))
}

/// In one process, whatever the order of the answers.
#[tokio::test(start_paused = true)]
async fn late_answers_lose_no_units_while_a_caller_waits() {
    for seed in 0..200 {
        let random = &mut SplitMix64(seed);
        let mut model = Model::new(400_000 + seed, None);
        let begin_ns = model.take(1_000_000) + 1_000_000;
        model.ask(1_000);
        model.answer(0);
        for _ in 0..200 {
            let some_answer = random.below(model.answers.len().max(1) as u64);
            match random.below(6) {
                0 | 1 => model.ask(1_000),
                2 if !model.answers.is_empty() => model.answer(some_answer as usize),
                3 if model.waiters.len() > 1 => {
                    // The first one stays.
                    model.waiters.sort_by_key(|waiter| waiter.number);
                    let others = model.waiters.len() as u64 - 1;
                    model.leave(1 + random.below(others) as usize);
                }
                4 if !model.pending.is_empty() => model.execute(0),
                5 if !model.pending.is_empty() => model.end_refund(0, false),
                _ => {}
            }
        }
        // The last one to come finds out what is left over.
        model.ask(1_000);
        while !model.answers.is_empty() || !model.pending.is_empty() {
            if !model.answers.is_empty() {
                model.answer(0);
            }
            if !model.pending.is_empty() {
                model.end_refund(0, false);
            }
        }
        assert_eq!(
            model.full_at_ns,
            begin_ns + 1_000 * model.waiters.len() as u64
        );
    }
}

/// What they reserved is not in the bucket any more. Others have the same times since.
#[tokio::test(start_paused = true)]
async fn waiters_from_before_a_reset_refund_nothing() {
    let mut model = Model::new(300_000, None);
    let come = |model: &mut Model| {
        model.full_at_ns = 1_000_000;
        for _ in 0..10 {
            model.ask(1_000);
            model.answer(0);
        }
    };
    come(&mut model);
    come(&mut model);
    let is_before = |waiter: &Waiter| waiter.number <= 10;
    while let Some(index) = model.waiters.iter().position(is_before) {
        model.leave(index);
        assert!(model.pending.is_empty());
    }
    model.leave(9);
    model.end_refund(0, false);
    assert_eq!(model.full_at_ns, 1_000_000 + 9 * 1_000);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The work of a crowd that leaves grows as its number, and not as its square.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_wakes_one_other_at_most() {
    let mut model = Model::new(200_000, None);
    model.take(1_000_000);
    for _ in 0..300 {
        model.ask(1_000);
        model.answer(0);
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    for round in 1..=150 {
        for is_first in [true, false] {
            for Waiter { reservation, .. } in &model.waiters {
                assert!(sleep(reservation, &waker).is_some());
            }
            model.waiters.sort_by_key(|waiter| waiter.number);
            let index = if is_first { 0 } else { model.waiters.len() / 2 };
            model.leave(index);
            // The one that is the first now, if it was not the first before.
            assert_eq!(count.0.load(Ordering::Relaxed), round, "first: {is_first}");
        }
    }
}
