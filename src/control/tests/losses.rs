//! What happens when Redis has lost changes, and when two primaries have taken some.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::time::advance;

use super::{HOUR, Shelf, modes};
use crate::{
    Clock, ManualClock, StoreError,
    control::{Control, Mode, document::Document, entry::Subject},
    error::StoreErrorKind,
    util::lock::lock,
};

const SECOND: Duration = Duration::from_secs(1);

struct Fleet {
    shelf: Shelf,
    /// That of Redis.
    clock: Arc<ManualClock>,
}

impl Fleet {
    fn new() -> Self {
        let (shelf, clock) = (Shelf::default(), Arc::new(ManualClock::new()));
        Self { shelf, clock }
    }

    /// Starts a process, which looks at the document.
    async fn start(&self) -> Control {
        let control = self.shelf.held(&self.clock);
        control.refresh().await.expect("nothing is wrong");
        control
    }

    /// Another primary, or a replica that takes over, has this text. Returns the former one.
    fn switch_to(&self, text: impl Into<Vec<u8>>) -> Vec<u8> {
        self.clock.advance(SECOND);
        let former = self.shelf.text();
        self.shelf.put(text);
        former
    }

    /// Redis loses its data.
    fn lose(&self) {
        self.switch_to("");
    }

    fn stored(&self) -> Document {
        Document::parse(&self.shelf.text()).expect("a document")
    }

    fn refuse_once(&self, kind: StoreErrorKind) {
        lock(&self.shelf.0).lost_answers = vec![(StoreError::new(kind), false)];
    }
}

async fn look(control: &Control) {
    control.refresh().await.expect("nothing is wrong");
}

async fn off(control: &Control, policy: &str) {
    let change = control.set_mode(policy, Mode::Off);
    change.await.expect("it is made");
}

async fn on(control: &Control, policy: &str) -> bool {
    control.clear_mode(policy).await.expect("it is made")
}

fn names(control: &Control) -> String {
    let entries = control.entries().into_iter();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.action.policy().map(str::to_owned))
        .collect();
    names.sort();
    names.join(" ")
}

#[tokio::test]
async fn what_has_ended_or_was_removed_is_not_brought_back_for_a_day() {
    let fleet = Fleet::new();
    let (one, cut_off) = (fleet.start().await, fleet.start().await);
    for policy in ["ended", "removed"] {
        off(&one, policy).await;
    }
    look(&cut_off).await;
    let change = one.set_mode("ended", Mode::Off).until(HOUR);
    change.await.expect("it is made");
    fleet.clock.advance(HOUR);
    assert!(on(&one, "removed").await);
    fleet.clock.advance(22 * HOUR);
    off(&one, "b").await;
    let stored = fleet.shelf.text();
    look(&cut_off).await;
    assert_eq!((names(&cut_off), fleet.shelf.text()), ("b".into(), stored));
}

/// A change that only it knows may have been removed, and the removal forgotten.
#[tokio::test]
async fn a_process_that_was_cut_off_for_a_day_takes_what_is_stored() {
    let fleet = Fleet::new();
    let (one, cut_off) = (fleet.start().await, fleet.start().await);
    for policy in ["removed", "kept"] {
        off(&one, policy).await;
    }
    look(&cut_off).await;
    assert!(on(&one, "removed").await);
    for _ in 0..25 {
        fleet.clock.advance(HOUR);
        look(&one).await;
    }
    off(&one, "b").await;
    let stored = fleet.shelf.text();
    look(&cut_off).await;
    assert_eq!(
        (names(&cut_off), fleet.shelf.text()),
        ("b kept".into(), stored)
    );

    // If nothing is stored, it is the only one that knows anything.
    for _ in 0..25 {
        fleet.clock.advance(HOUR);
    }
    fleet.lose();
    look(&cut_off).await;
    assert_eq!(names(&fleet.start().await), "b kept");
}

#[tokio::test]
async fn a_change_and_its_answer_are_the_same_after_a_loss() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.lose();
    // It restores what was lost, and there was nothing to take back.
    assert!(!on(&one, "b").await);
    assert_eq!(names(&fleet.start().await), "a");
    fleet.lose();
    assert!(on(&one, "a").await);
    assert_eq!(names(&fleet.start().await), "");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_right_to_write_keeps_what_it_knows_beside_what_is_stored() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.lose();
    fleet.refuse_once(StoreErrorKind::Refused);
    for _ in 0..3 {
        look(&one).await;
        let problem = one.status().problem.expect("a problem");
        let expected = "it lacks 1 known changes, which were not stored again: the store refused";
        assert!(problem.contains(expected), "{problem}");
        assert_eq!((names(&one), fleet.shelf.text()), ("a".into(), Vec::new()));
    }
    let other = modes(&["b"]);
    fleet.switch_to(other.clone());
    look(&one).await;
    assert_eq!((names(&one), fleet.shelf.text()), ("a b".into(), other));
    // It may be a lack of memory, which ends.
    advance(60 * SECOND).await;
    look(&one).await;
    assert_eq!(
        (fleet.stored().changes.len(), one.status().problem),
        (2, None)
    );
}

/// An application may read only, and is the last to know an entry. An operator lifts it from a process
/// that has not heard of it.
#[tokio::test(start_paused = true)]
async fn what_only_a_reader_knows_can_be_removed() {
    let fleet = Fleet::new();
    let reader = fleet.start().await;
    off(&reader, "a").await;
    fleet.lose();
    fleet.refuse_once(StoreErrorKind::Refused);
    look(&reader).await;
    assert_eq!(
        (names(&reader), fleet.shelf.text()),
        ("a".into(), Vec::new())
    );
    let operator = fleet.start().await;
    assert!(!on(&operator, "a").await);
    look(&reader).await;
    assert_eq!(names(&reader), "");
    // Once is enough.
    let stored = fleet.shelf.text();
    assert!(!on(&operator, "a").await);
    assert_eq!(fleet.shelf.text(), stored);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_stored_again_is_tried_at_the_next_look() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.switch_to(modes(&["b"]));
    fleet.refuse_once(StoreErrorKind::Timeout);
    look(&one).await;
    assert_eq!(names(&one), "a b");
    let problem = one.status().problem.expect("a problem");
    assert!(problem.contains("it lacks 1 known changes"), "{problem}");
    look(&one).await;
    assert_eq!(
        (names(&fleet.start().await), one.status().problem),
        ("a b".into(), None)
    );
}

#[tokio::test]
async fn the_slower_of_two_that_merge_takes_what_the_faster_one_wrote() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start().await, fleet.start().await);
    off(&one, "a").await;
    look(&other).await;
    fleet.switch_to(modes(&["b"]));
    let before = fleet.shelf.text();
    look(&other).await;
    let merged = fleet.shelf.text();
    fleet.shelf.put(before);
    lock(&fleet.shelf.0).rivals = vec![merged.clone()];
    for _ in 0..2 {
        look(&one).await;
        assert_eq!(
            (names(&one), fleet.shelf.text()),
            ("a b".into(), merged.clone())
        );
    }
    assert_eq!(one.status().version, other.status().version);
}

/// A full document stays full, and is not written again and again.
#[tokio::test]
async fn the_oldest_removals_give_way_to_entries_everywhere() {
    let names: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let fleet = Fleet::new();
    fleet.switch_to(modes(&names));
    let (one, other) = (fleet.start().await, fleet.start().await);
    for removed in ["17", "18"] {
        assert!(on(&one, removed).await);
        look(&other).await;
        fleet.clock.advance(SECOND);
    }
    off(&one, "a").await;
    let stored = fleet.shelf.text();
    for process in [&other, &one, &other] {
        look(process).await;
        let changes = &process.0.document().changes;
        let is_known = |name: &str| changes.contains_key(&Subject::Mode(name.to_owned()));
        let kept = ["17", "18"].map(is_known);
        assert_eq!((changes.len(), kept), (10_000, [false, true]));
        assert_eq!(process.status().entries, 9_999);
    }
    assert_eq!(fleet.shelf.text(), stored);
}

/// Removals of one change have one date, and all processes drop the same ones for room.
#[tokio::test]
async fn removals_of_one_date_give_way_in_one_order() {
    let names =
        |from: u32| -> Vec<String> { (from..from + 6_000).map(|at| at.to_string()).collect() };
    let words = |names: &[String]| modes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let fleet = Fleet::new();
    fleet.switch_to(words(&names(0)));
    let (one, other) = (fleet.start().await, fleet.start().await);
    assert!(one.remove_all().await.expect("it is made"));
    look(&other).await;
    // Those of another primary leave no room for all removals.
    fleet.switch_to(words(&names(10_000)));
    look(&one).await;
    let merged = fleet.shelf.text();
    for process in [&other, &one, &other] {
        look(process).await;
        assert_eq!(fleet.shelf.text(), merged);
        assert_eq!(process.status().entries, 6_000);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Off(usize, u8),
    On(usize, u8),
    RemoveAll(usize),
    Look(usize),
    Restart(usize),
    Lose,
    GoBack(prop::sample::Index),
    Swap,
    Clock(i64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let process = 0..3_usize;
    let name = 0..4_u8;
    prop_oneof![
        4 => (process.clone(), name.clone()).prop_map(|(process, name)| Step::Off(process, name)),
        2 => (process.clone(), name).prop_map(|(process, name)| Step::On(process, name)),
        1 => process.clone().prop_map(Step::RemoveAll),
        4 => process.clone().prop_map(Step::Look),
        1 => process.prop_map(Step::Restart),
        1 => Just(Step::Lose),
        1 => any::<prop::sample::Index>().prop_map(Step::GoBack),
        2 => Just(Step::Swap),
        1 => (-600_i64..600).prop_map(Step::Clock),
    ]
}

/// Runs steps. Returns the last acknowledged change of each subject.
async fn run(fleet: &Fleet, processes: &mut [Control; 3], steps: Vec<Step>) -> Document {
    let mut acknowledged = Document::default();
    let (mut texts, mut other_primary) = (vec![Vec::new()], Vec::new());
    for step in steps {
        fleet.clock.advance(SECOND);
        let changed = match step {
            Step::Off(process, name) => {
                off(&processes[process], &name.to_string()).await;
                Some(process)
            }
            Step::On(process, name) => {
                on(&processes[process], &name.to_string()).await;
                Some(process)
            }
            Step::RemoveAll(process) => {
                processes[process].remove_all().await.expect("it is made");
                Some(process)
            }
            Step::Look(process) => {
                look(&processes[process]).await;
                None
            }
            Step::Restart(process) => {
                processes[process] = fleet.shelf.held(&fleet.clock);
                None
            }
            Step::Lose => {
                fleet.shelf.put("");
                None
            }
            Step::GoBack(index) => {
                fleet.shelf.put(index.get(&texts).clone());
                None
            }
            Step::Swap => {
                other_primary = fleet.switch_to(other_primary);
                None
            }
            Step::Clock(seconds) => {
                let now_us = fleet.clock.now_us();
                fleet
                    .clock
                    .set_us(now_us.saturating_add_signed(seconds * 1_000_000));
                None
            }
        };
        if let Some(process) = changed {
            let mut new = Document::clone(&processes[process].0.document());
            let version = new.version;
            new.changes.retain(|_, last| last.ms() == version);
            acknowledged = acknowledged.merge(&new);
        }
        texts.push(fleet.shelf.text());
    }
    for _ in 0..2 {
        for process in &*processes {
            look(process).await;
        }
    }
    let stored = fleet.shelf.text();
    for process in &*processes {
        look(process).await;
        assert_eq!(*process.0.document(), fleet.stored());
    }
    assert_eq!(fleet.shelf.text(), stored, "nothing is left to write");
    acknowledged
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(work);
}

proptest! {
    /// Whatever is lost, all processes soon agree with what is stored, and stop writing.
    #[test]
    fn all_processes_agree_in_the_end(steps in prop::collection::vec(any_step(), 1..40)) {
        block_on(async {
            let fleet = Fleet::new();
            let mut processes = [(); 3].map(|()| fleet.shelf.held(&fleet.clock));
            run(&fleet, &mut processes, steps).await;
        });
    }

    /// Losses, failovers, two primaries and clocks that step, while those that made changes live.
    #[test]
    fn the_last_acknowledged_change_of_each_subject_applies_in_the_end(
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        block_on(async {
            let fleet = Fleet::new();
            let mut processes = [(); 3].map(|()| fleet.shelf.held(&fleet.clock));
            let steps = steps.into_iter().filter(|step| !matches!(step, Step::Restart(_)));
            let acknowledged = run(&fleet, &mut processes, steps.collect()).await;
            assert_eq!(fleet.stored().lacks(&acknowledged), 0);
        });
    }
}
