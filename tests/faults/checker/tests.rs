//! The checker can fail: for each invariant there are ledgers that keep it, and ledgers that
//! barely break it.

use super::*;
use crate::prelude::*;

const ALLOWED: Outcome = Outcome::Allowed(By::Store);

fn entry(id: u64, key: u32, outcome: Outcome, sent_us: u64) -> Entry {
    Entry {
        process: 0,
        id,
        key,
        cost: 1,
        outcome,
        sent_us,
        answered_us: sent_us + 100,
        remaining: None,
    }
}

/// Ten at once, and then one each 100 ms: what 10 a second with a burst of 10 admits.
fn steady() -> Vec<Entry> {
    let sent = (0..10).map(|id| (id, 1_000_000));
    let later = (10..50).map(|id| (id, 1_000_000 + (id - 9) * 100_000));
    sent.chain(later)
        .map(|(id, sent_us)| entry(id, 1, ALLOWED, sent_us))
        .collect()
}

fn promise() -> Promise {
    Promise {
        burst: 10,
        per_s: 10.0,
        losses: Vec::new(),
        elsewhere: Elsewhere::Nothing,
    }
}

#[test]
fn one_admission_too_many_is_detected() {
    let mut ledger = steady();
    assert!(admitted(&ledger, &promise()).expect("within") > 0.99);
    for sent_us in [1_000_050, 2_000_000, 4_999_000] {
        let mut ledger = ledger.clone();
        ledger.push(entry(50, 1, ALLOWED, sent_us));
        let broken = admitted(&ledger, &promise());
        assert!(broken.is_err(), "{sent_us}: {broken:?}");
        // A denial, or a request of another key, is not one too many.
        ledger[50].outcome = Outcome::Denied(By::Store);
        admitted(&ledger, &promise()).expect("within");
        ledger[50] = entry(50, 2, ALLOWED, sent_us);
        admitted(&ledger, &promise()).expect("within");
    }
    // It costs more than the others.
    ledger[30].cost = 2;
    assert!(admitted(&ledger, &promise()).is_err());
    assert!(admitted(&[], &promise()).is_err(), "nothing is no proof");
}

#[test]
fn a_loss_grants_one_burst_to_its_keys_only() {
    let mut ledger = steady();
    // After a loss, with what refills until the next one, nine more fit.
    ledger.extend((50..59).map(|id| entry(id, 1, ALLOWED, 3_000_500)));
    assert!(admitted(&ledger, &promise()).is_err());
    let loss = Window {
        from_us: 3_000_000,
        to_us: 3_000_400,
    };
    let mut lost = promise();
    lost.losses.push(loss);
    admitted(&ledger, &lost).expect("a burst for a loss");
    ledger.push(entry(60, 1, ALLOWED, 3_000_600));
    assert!(admitted(&ledger, &lost).is_err(), "one more than that");
    ledger.pop();
    lost.losses[0] = Window {
        from_us: 4_000_000,
        to_us: 4_000_400,
    };
    assert!(admitted(&ledger, &lost).is_err(), "before the loss");
}

#[test]
fn admissions_without_the_store_are_counted() {
    let mut ledger = steady();
    let by_itself = |id, process| Entry {
        process,
        ..entry(id, 1, Outcome::Allowed(By::Local), 3_000_000)
    };
    ledger.extend((50..53).map(|id| by_itself(id, 0)));
    ledger.extend((53..56).map(|id| by_itself(id, 1)));
    assert!(admitted(&ledger, &promise()).is_err(), "fail-closed");
    let mut local = promise();
    local.elsewhere = Elsewhere::Local {
        burst: 3,
        per_s: 1.0,
        outages: 1,
    };
    admitted(&ledger, &local).expect("three in each process");
    ledger.push(by_itself(56, 1));
    assert!(admitted(&ledger, &local).is_err(), "four");
    ledger[56].outcome = Outcome::Allowed(By::Failure);
    assert!(admitted(&ledger, &local).is_err(), "without a decision");
    local.elsewhere = Elsewhere::Anything;
    admitted(&ledger, &local).expect("fail-open");
}

#[test]
fn a_late_answer_and_a_missing_one_are_detected() {
    let mut ledger: Vec<Entry> = (0..2_000).map(|id| entry(id, 1, ALLOWED, id)).collect();
    for place in [5, 6] {
        ledger[place].answered_us = ledger[place].sent_us + 99_000;
    }
    let times = answered(&ledger).expect("all are answered");
    let (usual, late) = (Duration::from_micros(100), Duration::from_millis(99));
    assert_eq!(times.of_share(0.999), usual);
    assert_eq!(times.of_share(1.0), late);
    assert_eq!(times.share_above(usual), 0.001);
    assert_eq!(times.share_above(late), 0.0);
    ledger[7].answered_us = ledger[7].sent_us + 99_000;
    let times = answered(&ledger).expect("all are answered");
    assert_eq!(times.of_share(0.999), late);
    assert!(times.share_above(usual) > 0.001);
    ledger[0].outcome = Outcome::Unanswered;
    assert!(answered(&ledger).is_err());
    assert!(answered(&[]).is_err(), "nothing is no proof");
}

#[test]
fn a_reply_to_another_call_is_detected() {
    let reported = |id, key, remaining| Entry {
        remaining: Some(remaining),
        ..entry(id, key, ALLOWED, id)
    };
    // Bands of 100 below 1000: 900 to 1000, and 800 to 900.
    let mut ledger = vec![
        reported(0, 0, 999),
        reported(1, 0, 998),
        reported(2, 1, 899),
    ];
    assert_eq!(own_replies(&ledger, 1_000, 100), Ok(3));
    ledger.push(reported(3, 1, 901));
    assert!(own_replies(&ledger, 1_000, 100).is_err(), "of key 0");
    ledger[3] = reported(3, 0, 899);
    assert!(own_replies(&ledger, 1_000, 100).is_err(), "of key 1");
    ledger[3] = reported(3, 0, 998);
    assert!(
        own_replies(&ledger, 1_000, 100).is_err(),
        "the same number twice"
    );
    ledger[3].outcome = Outcome::Denied(By::Store);
    assert_eq!(own_replies(&ledger, 1_000, 100), Ok(3));
    assert!(own_replies(&[], 1_000, 100).is_err(), "nothing is no proof");
}

#[test]
fn a_missing_charge_and_a_surplus_charge_are_detected() {
    let ledger = [
        entry(0, 1, ALLOWED, 0),
        entry(1, 1, ALLOWED, 1),
        entry(2, 1, Outcome::Timeout, 2),
        entry(3, 1, Outcome::Denied(By::Store), 3),
        entry(4, 1, Outcome::Overloaded, 4),
        entry(5, 2, Outcome::HungUp, 5),
    ];
    let judge = |one: u64, two: u64| charged(&ledger, &HashMap::from([(1, one), (2, two)]), 1);
    assert_eq!(judge(2, 0), Ok(0));
    assert_eq!(judge(3, 1), Ok(2));
    assert!(judge(1, 0).is_err(), "admitted and not charged");
    assert!(judge(4, 0).is_err(), "charged for nothing");
    assert!(judge(2, 2).is_err(), "charged twice");
    let twice = charged(&ledger, &HashMap::from([(1, 4), (2, 2)]), 2);
    assert_eq!(twice, Ok(4));
    assert!(charged(&[], &HashMap::new(), 1).is_err());
}

#[test]
fn a_process_that_never_recovers_is_detected() {
    let of = |process, outcome, sent_us| Entry {
        process,
        ..entry(0, 1, outcome, sent_us)
    };
    let mut ledger = vec![
        of(0, ALLOWED, 10),
        of(1, ALLOWED, 10),
        of(0, Outcome::Timeout, 1_000_000),
        of(0, Outcome::Denied(By::Store), 1_500_000),
        of(1, Outcome::Denied(By::Local), 1_500_000),
    ];
    assert!(resumed(&ledger, 1_000_000).is_err(), "of process 1");
    ledger.push(of(1, ALLOWED, 1_900_000));
    let took = resumed(&ledger, 1_000_000);
    assert_eq!(took, Ok(Duration::from_micros(900_100)));
    assert!(resumed(&[], 0).is_err(), "nothing is no proof");
}

#[test]
fn a_store_that_panics_or_hangs_is_detected() {
    let mut ledger = steady();
    nothing_broke(&ledger).expect("all well");
    ledger[7].outcome = Outcome::Panicked;
    assert!(nothing_broke(&ledger).is_err());
    ledger[7].outcome = Outcome::Unanswered;
    assert!(nothing_broke(&ledger).is_err());
    assert_eq!(outcomes(&ledger)["allowed-store"], 49);
}
