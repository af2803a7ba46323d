//! A server that sends wrong replies.

use crate::prelude::*;
use crate::{
    liar::{Liar, Lie},
    outage::RESUMES,
};

/// The server failed, or there was no time to call it.
const NO_ANSWER: [Outcome; 4] = [
    Outcome::Unavailable,
    Outcome::Timeout,
    Outcome::Refused,
    Outcome::Overloaded,
];

async fn ask(limiter: &Limiter, checks: u32) -> Vec<Entry> {
    let recorder = Recorder::new(0);
    for _ in 0..checks / 8 {
        let mut asking = JoinSet::new();
        for key in 0..8 {
            let (limiter, recorder) = (limiter.clone(), recorder.clone());
            asking.spawn(async move {
                let pending = recorder.open(key, 1);
                pending.answered(&limiter.check(u64::from(key)).await);
            });
        }
        asking.join_all().await;
    }
    recorder.ledger()
}

/// All checks end with one of these outcomes, and decisions come back with correct replies.
/// Returns how long that took.
async fn lies(lie: Lie, expected: &[Outcome]) -> Duration {
    let liar = Liar::start(Lie::None);
    let deadline = if *expected == NO_ANSWER {
        rig::CALL
    } else {
        rig::patience()
    };
    let store = rig::store(deadline, &liar.url());
    let limiter = rig::limiter(store, TokenBucket::per_hour(3));
    rig::ready(&limiter).await;
    liar.set(lie);
    let before = liar.scripts();
    let ledger = ask(&limiter, or_long(32, 1_000)).await;
    assert!(liar.scripts() > before, "{lie:?} was never sent");
    let outcomes = checker::outcomes(&ledger);
    let is = |outcome| expected.contains(&outcome);
    assert!(rig::count(&ledger, is) > 0, "{lie:?}: {outcomes:?}");
    // After too many of them, the breaker opens for a while.
    let others = rig::count(&ledger, |outcome| {
        !is(outcome) && outcome != Outcome::Unavailable
    });
    assert_eq!(others, 0, "{lie:?}: {outcomes:?}");
    liar.set(Lie::None);
    wait::until_async("decisions after a lie", async || {
        limiter.check("ann").await.is_ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_are_errors_and_never_decisions() {
    let mut row = Row::start("lies");
    let foreign = [Outcome::ForeignReply];
    let loading = Lie::Error("LOADING Redis is loading the dataset in memory");
    let all: [(Lie, &[Outcome]); 6] = [
        (Lie::Nil, &foreign),
        (Lie::ShortRow, &foreign),
        (Lie::WrongNonce, &foreign),
        (Lie::ListOfIntegers, &foreign),
        (loading, &[Outcome::Refused]),
        (Lie::Close, &NO_ANSWER),
    ];
    let mut longest = Duration::ZERO;
    for (lie, expected) in all {
        longest = longest.max(lies(lie, expected).await);
    }
    row.took("resumed after", longest, RESUMES);
    row.tell(6);
}

/// The client connects anew after this lie, and checks in the meantime have no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_an_error() {
    let mut row = Row::start("lie CLUSTERDOWN");
    let lie = Lie::Error("CLUSTERDOWN The cluster is down");
    let resumed = lies(lie, &NO_ANSWER).await;
    row.took("resumed after", resumed, RESUMES);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_waits_for_half_a_gigabyte_that_never_comes() {
    let mut row = Row::start("lie huge bulk");
    // What the first store and server of a process take does not count.
    lies(Lie::Close, &NO_ANSWER).await;
    let memory = Sampler::start();
    let resumed = lies(Lie::HugeBulk, &NO_ANSWER).await;
    let memory = memory.stop();
    // Otherwise other rows run in this process, too.
    if judges_time() {
        memory.bounded(32 * 1_024, 100).expect("I3");
    }
    row.took("resumed after", resumed, RESUMES);
    row.figure("this process grew by kB", memory.most - memory.before);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_surplus_reply_answers_no_check() {
    let mut row = Row::start("lie extra frame");
    let expected = [
        Outcome::Allowed(By::Store),
        Outcome::ForeignReply,
        Outcome::Unavailable,
        Outcome::Timeout,
    ];
    let resumed = lies(Lie::ExtraFrame, &expected).await;
    row.took("resumed after", resumed, RESUMES);
    row.tell(1);
}
