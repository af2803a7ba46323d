//! A line is settled after each event, whatever came before.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

use super::*;
use crate::random::SplitMix64;

const SECOND: Duration = Duration::from_secs(1);

/// A bucket in which others, whom nobody here knows, stand too.
struct Model {
    bucket: Bucket,
    begin: Instant,
    full_at_ns: u64,
    turns: Vec<Turn>,
    on_their_way: Vec<Free>,
    /// Of those who stand here, and what they left.
    known_ns: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let name = Name::new("turns").expect("a name");
        Self {
            bucket: (0, name, 'q', Key::from(seed)),
            // No turn comes during the test.
            begin: Instant::now() + 3_600 * SECOND,
            full_at_ns: 0,
            turns: Vec::new(),
            on_their_way: Vec::new(),
            known_ns: 0,
        }
    }

    fn come(&mut self, level_ns: u64) {
        let moment = self.moment(self.full_at_ns);
        self.full_at_ns += level_ns;
        let bucket = self.bucket.clone();
        let (turn, free) = Turn::new(bucket, moment, self.full_at_ns, level_ns);
        self.turns.push(turn);
        self.on_their_way.extend(free);
        self.known_ns += level_ns;
    }

    fn leave(&mut self, at: usize) {
        let turn = self.turns.swap_remove(at);
        self.on_their_way.extend(turn.leave());
    }

    /// What a bucket answers; nothing comes back that is not at its end.
    fn answer(&mut self, at: usize, is_lost: bool) {
        let free = self.on_their_way.swap_remove(at);
        let span = free.hole.span;
        let level_ns = if span.end_ns == self.full_at_ns {
            self.full_at_ns = span.start_ns;
            span.length_ns()
        } else {
            0
        };
        let told = Some(level_ns).filter(|_| !is_lost);
        if told != Some(0) {
            self.known_ns -= span.length_ns();
        }
        let next = free.given(told);
        self.on_their_way.extend(next);
    }

    fn moment(&self, start_ns: u64) -> Instant {
        self.begin + Duration::from_nanos(start_ns)
    }

    fn assert_settled(&self) {
        let lines = lock(&LINES);
        let Some(line) = lines.by_bucket.get(&self.bucket) else {
            assert_eq!(self.turns.len(), 0);
            return;
        };
        let places: Vec<_> = line.places.iter().map(|place| lock(place)).collect();
        for place in &places {
            assert_eq!(place.moment, self.moment(place.span.start_ns));
        }
        assert_eq!(places.len(), self.turns.len());
        let free = line.holes.iter().filter(|hole| line.giving != Some(**hole));
        for hole in free {
            let end_ns = hole.span.end_ns;
            let behind = places.iter().find(|place| place.span.start_ns == end_ns);
            assert!(behind.is_none(), "{hole:?} has somebody behind it");
            let mut others = line.holes.iter();
            let next = others.find(|other| other.span.start_ns == end_ns);
            // It may be on its way back by now.
            assert!(next.is_none() || next.copied() == line.giving, "{hole:?}");
            assert_eq!(hole.moment, self.moment(hole.span.start_ns));
        }
        let mut spans: Vec<_> = places.iter().map(|place| place.span).collect();
        spans.extend(line.holes.iter().map(|hole| hole.span));
        spans.sort_by_key(|span| span.start_ns);
        let known_ns: u64 = spans.iter().map(|span| span.length_ns()).sum();
        assert_eq!(known_ns, self.known_ns);
        for pair in spans.windows(2) {
            assert!(pair[0].end_ns <= pair[1].start_ns, "had twice: {pair:?}");
        }
    }
}

#[test]
fn a_line_is_settled_after_each_event() {
    for seed in 0..200 {
        let random = &mut SplitMix64(seed);
        let mut model = Model::new(seed);
        for _ in 0..150 {
            match random.below(8) {
                0..=2 => model.come(1_000 * (1 + random.below(3))),
                // Another process's caller.
                3 => model.full_at_ns += 1_000 * random.below(3),
                4..=5 if !model.turns.is_empty() => {
                    let at = random.below(model.turns.len() as u64);
                    model.leave(at as usize);
                }
                6..=7 if !model.on_their_way.is_empty() => {
                    let at = random.below(model.on_their_way.len() as u64);
                    model.answer(at as usize, random.below(4) == 0);
                }
                _ => {}
            }
            model.assert_settled();
        }
    }
}

#[test]
fn all_who_leave_one_by_one_leave_nothing() {
    let mut model = Model::new(1_000);
    for _ in 0..300 {
        model.come(1_000);
    }
    while !model.turns.is_empty() {
        model.leave(0);
        model.assert_settled();
    }
    while !model.on_their_way.is_empty() {
        model.answer(0, false);
    }
    assert_eq!((model.known_ns, model.full_at_ns), (0, 0));
    assert!(!lock(&LINES).by_bucket.contains_key(&model.bucket));
}
