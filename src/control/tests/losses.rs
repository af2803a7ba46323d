//! What happens when Redis has lost the document, or its last changes.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::time::advance;

use super::{Shelf, modes};
use crate::{
    ManualClock, StoreError,
    control::{Control, Mode, document::Document},
    error::StoreErrorKind,
    util::lock::lock,
};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

struct Fleet {
    shelf: Shelf,
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

    /// Redis loses its data.
    fn lose(&self) {
        self.clock.advance(SECOND);
        self.shelf.put("");
    }

    /// A replica with an older version takes over.
    fn go_back(&self, text: Vec<u8>) {
        self.clock.advance(SECOND);
        self.shelf.put(text);
    }

    fn stored(&self) -> Document {
        Document::parse(&self.shelf.text()).expect("a document")
    }

    fn refuse_once(&self, kind: StoreErrorKind) {
        lock(&self.shelf.0).lost_answers = vec![(StoreError::new(kind), false)];
    }
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
async fn one_of_the_processes_that_knew_a_lost_document_stores_it_again() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start().await, fleet.start().await);
    off(&one, "a").await;
    other.refresh().await.expect("it is read");
    fleet.lose();
    for process in [&one, &other] {
        let error = process.refresh().await.expect_err("it is gone").to_string();
        assert!(error.contains("the next look stores it again"), "{error}");
    }
    one.refresh().await.expect("it is stored");
    let stored = fleet.shelf.text();
    other.refresh().await.expect("it is there");
    assert_eq!(fleet.shelf.text(), stored, "once");
    assert_eq!((names(&one), names(&other)), ("a".into(), "a".into()));
    assert_eq!((fleet.stored().version, other.status().version), (2, 2));
    assert_eq!(names(&fleet.start().await), "a");
}

/// The command line knows nothing of what was lost.
#[tokio::test]
async fn the_first_change_after_a_loss_does_not_become_the_whole_document() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start().await, fleet.start().await);
    one.ban("plan", "ann", HOUR).await.expect("it is made");
    off(&one, "replaced").await;
    other.refresh().await.expect("it is read");
    fleet.lose();
    let new = fleet.start().await;
    off(&new, "b").await;
    let change = new.set_mode("replaced", Mode::Shadow);
    change.because("newer").await.expect("it is made");
    // One that has seen the loss, and one that has not.
    one.refresh().await.expect("it is merged");
    for process in [&one, &other, &new] {
        process.refresh().await.expect("it is read");
        assert_eq!(names(process), "b plan replaced");
        let entries = process.entries();
        let newer = entries.iter().filter(|entry| entry.reason.is_some());
        assert_eq!(newer.count(), 1);
        assert_eq!(process.status().problem, None);
    }
    // Each is a follower of the merged document now: what is removed stays removed.
    assert!(on(&new, "b").await && on(&other, "replaced").await);
    for process in [&one, &new, &other] {
        process.refresh().await.expect("it is read");
        assert_eq!(names(process), "plan");
    }
}

/// It saw what was made after the loss, but not how that was merged.
#[tokio::test]
async fn what_is_removed_after_a_merge_stays_removed_for_those_who_missed_it() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.lose();
    let (new, missed) = (fleet.start().await, fleet.start().await);
    off(&new, "b").await;
    missed.refresh().await.expect("it is read");
    one.refresh().await.expect("it is merged");
    assert!(on(&one, "b").await);
    missed.refresh().await.expect("it is read");
    assert_eq!((names(&missed), names(&one)), ("a".into(), "a".into()));
}

#[tokio::test]
async fn a_document_that_was_emptied_by_intent_stays_empty() {
    let fleet = Fleet::new();
    let (one, asleep) = (fleet.start().await, fleet.start().await);
    off(&one, "a").await;
    asleep.refresh().await.expect("it is read");
    assert!(one.remove_all().await.expect("it is made"));
    fleet.lose();
    // It wakes, and is the first to find that the document is gone.
    asleep.refresh().await.expect_err("it is gone");
    asleep.refresh().await.expect("it is stored");
    assert_eq!(fleet.stored().entries.len(), 1);
    for process in [&one, &asleep] {
        process.refresh().await.expect("it is read");
        assert_eq!(names(process), "");
    }
    assert!(!one.remove_all().await.expect("nothing to do"));
    let version = fleet.stored().version;
    one.refresh().await.expect("it is read");
    assert_eq!(fleet.stored().version, version);
}

#[tokio::test]
async fn an_older_version_that_a_failover_brought_back_is_replaced() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    for policy in ["a", "b"] {
        off(&one, policy).await;
    }
    let former = fleet.shelf.text();
    fleet.clock.advance(SECOND);
    assert!(on(&one, "a").await);
    off(&one, "c").await;
    fleet.go_back(former.clone());
    one.refresh().await.expect("it is read");
    assert_eq!((names(&one), fleet.stored().version), ("b c".into(), 5));

    // A change was made of the older version: it stays.
    fleet.go_back(former);
    let new = fleet.start().await;
    off(&new, "d").await;
    let change = new.set_mode("c", Mode::Shadow).because("newer");
    change.await.expect("it is made");
    one.refresh().await.expect("it is read");
    new.refresh().await.expect("it is read");
    assert_eq!((names(&one), names(&new)), ("b c d".into(), "b c d".into()));
    let entries = one.entries();
    let newer = entries.iter().filter(|entry| entry.reason.is_some());
    assert_eq!((newer.count(), fleet.stored().version), (1, 6));
}

#[tokio::test]
async fn what_has_ended_is_not_brought_back() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    let change = one.set_mode("a", Mode::Off).until(HOUR);
    change.await.expect("it is made");
    fleet.lose();
    fleet.clock.advance(HOUR);
    let new = fleet.start().await;
    off(&new, "b").await;
    let stored = fleet.shelf.text();
    one.refresh().await.expect("it is read");
    assert_eq!((names(&one), fleet.shelf.text()), ("b".into(), stored));
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
    assert_eq!(fleet.stored().entries.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_right_to_write_follows_what_is_stored() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.lose();
    one.refresh().await.expect_err("it is gone");
    fleet.refuse_once(StoreErrorKind::Refused);
    for _ in 0..3 {
        one.refresh().await.expect_err("it is gone");
        let problem = one.status().problem.expect("a problem");
        assert!(
            problem.contains("was not stored again: the store refused"),
            "{problem}"
        );
        assert_eq!((names(&one), fleet.shelf.text()), ("a".into(), Vec::new()));
    }
    // It may be a lack of memory, which ends.
    advance(60 * SECOND).await;
    one.refresh().await.expect("it is stored");
    assert_eq!(fleet.stored().entries.len(), 1);

    fleet.go_back(modes(1, &["b"]));
    fleet.refuse_once(StoreErrorKind::Refused);
    one.refresh().await.expect("it is taken as it is");
    assert_eq!((names(&one), one.status().problem), ("b".into(), None));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_stored_again_is_tried_at_the_next_look() {
    let fleet = Fleet::new();
    let one = fleet.start().await;
    off(&one, "a").await;
    fleet.go_back(modes(1, &["b"]));
    fleet.refuse_once(StoreErrorKind::Timeout);
    one.refresh().await.expect_err("no answer");
    assert_eq!(names(&one), "a");
    let problem = one.status().problem.expect("a problem");
    assert!(problem.contains("it lacks changes"), "{problem}");
    one.refresh().await.expect("it is merged");
    assert_eq!((names(&one), one.status().problem), ("a b".into(), None));
}

/// It reads what the faster one wrote at once.
#[tokio::test]
async fn the_slower_of_two_that_merge_takes_what_the_faster_one_wrote() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start().await, fleet.start().await);
    off(&one, "a").await;
    other.refresh().await.expect("it is read");
    fleet.go_back(modes(1, &["b"]));
    let before = fleet.shelf.text();
    other.refresh().await.expect("it is merged");
    let merged = fleet.shelf.text();
    fleet.shelf.put(before);
    lock(&fleet.shelf.0).rivals = vec![merged.clone()];
    one.refresh().await.expect("it is read");
    assert_eq!((names(&one), fleet.shelf.text()), ("a b".into(), merged));
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
    ]
}

proptest! {
    /// Whatever is lost, all processes soon agree with what is stored, and stop writing.
    #[test]
    fn all_processes_agree_in_the_end(steps in prop::collection::vec(any_step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let fleet = Fleet::new();
            let new = || fleet.shelf.held(&fleet.clock);
            let mut processes = [new(), new(), new()];
            let mut texts = vec![Vec::new()];
            for step in steps {
                fleet.clock.advance(SECOND);
                match step {
                    Step::Off(process, name) => off(&processes[process], &name.to_string()).await,
                    Step::On(process, name) => drop(on(&processes[process], &name.to_string()).await),
                    Step::RemoveAll(process) => {
                        processes[process].remove_all().await.expect("it is made");
                    }
                    // It is an error if nothing is there.
                    Step::Look(process) => drop(processes[process].refresh().await),
                    Step::Restart(process) => processes[process] = new(),
                    Step::Lose => fleet.shelf.put(""),
                    Step::GoBack(index) => fleet.shelf.put(index.get(&texts).clone()),
                }
                texts.push(fleet.shelf.text());
            }
            for _ in 0..3 {
                for process in &processes {
                    let _ = process.refresh().await;
                }
            }
            let stored = fleet.shelf.text();
            let document = Document::parse(&stored).expect("a document");
            for process in &processes {
                process.refresh().await.expect("nothing is wrong");
                assert_eq!(*process.0.document(), document);
            }
            assert_eq!(fleet.shelf.text(), stored);
        });
    }
}
