//! The checker can fail: for each invariant there are ledgers that keep it, and ledgers that
//! barely break it.

use super::*;
use crate::prelude::*;

const ALLOWED: Outcome = Outcome::Allowed(By::Store);
const DENIED: Outcome = Outcome::Denied(By::Store);

fn entry(key: u32, outcome: Outcome, sent_us: u64) -> Entry {
    Entry {
        process: 0,
        id: 0,
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
    let later = (1..=40).map(|number| 1_000_000 + number * 100_000);
    let sent = [1_000_000; 10].into_iter().chain(later);
    sent.map(|sent_us| entry(1, ALLOWED, sent_us)).collect()
}

const NOTHING: Elsewhere = Elsewhere::Nothing;
const LOCAL: Elsewhere = Elsewhere::Local {
    burst: 3,
    per_s: 1.0,
    outages: 1,
};

/// Whether the checker finds that a steady ledger with more entries keeps the promise.
fn keeps(more: Vec<Entry>, losses: &[Window], elsewhere: Elsewhere) -> bool {
    let promise = Promise {
        burst: 10,
        per_s: 10.0,
        losses: losses.to_vec(),
        elsewhere,
    };
    assert!(admitted(&[], &promise).is_err(), "nothing is no proof");
    admitted(&[steady(), more].concat(), &promise).is_ok()
}

#[test]
fn one_admission_too_many_is_detected() {
    assert!(keeps(vec![], &[], NOTHING));
    for sent_us in [1_000_050, 2_000_000, 4_999_000] {
        assert!(!keeps(vec![entry(1, ALLOWED, sent_us)], &[], NOTHING));
        assert!(keeps(vec![entry(1, DENIED, sent_us)], &[], NOTHING));
        assert!(keeps(vec![entry(2, ALLOWED, sent_us)], &[], NOTHING));
    }
    let mut costly = entry(2, ALLOWED, 0);
    costly.cost = 2;
    assert!(keeps(vec![costly.clone(); 5], &[], NOTHING));
    assert!(!keeps(vec![costly; 6], &[], NOTHING));
}

#[test]
fn a_loss_grants_one_burst_to_its_keys_only() {
    let [during, later] = [3_000_000, 4_000_000].map(|from_us| Window {
        from_us,
        to_us: from_us + 400,
    });
    // After a loss, with what refills until the next one, nine more fit.
    let more = |admissions| vec![entry(1, ALLOWED, 3_000_500); admissions];
    assert!(!keeps(more(9), &[], NOTHING));
    assert!(keeps(more(9), &[during], NOTHING));
    assert!(!keeps(more(10), &[during], NOTHING));
    assert!(!keeps(more(9), &[later], NOTHING));
}

#[test]
fn admissions_without_the_store_are_counted() {
    let here = |by, process, admissions| {
        let mut entry = entry(1, Outcome::Allowed(by), 3_000_000);
        entry.process = process;
        vec![entry; admissions]
    };
    let both = |second| [here(By::Local, 0, 3), here(By::Local, 1, second)].concat();
    assert!(!keeps(both(0), &[], NOTHING), "fail-closed");
    assert!(keeps(both(3), &[], LOCAL), "three in each process");
    assert!(!keeps(both(4), &[], LOCAL), "four");
    assert!(!keeps(here(By::Failure, 0, 1), &[], LOCAL), "no decision");
    let fails_open = keeps(here(By::Failure, 0, 9), &[], Elsewhere::Anything);
    assert!(fails_open);
}

#[test]
fn a_late_answer_and_a_missing_one_are_detected() {
    let mut ledger: Vec<_> = (0..2_000).map(|at_us| entry(1, ALLOWED, at_us)).collect();
    let (usual, late) = (Duration::from_micros(100), Duration::from_millis(99));
    for (place, longest_of_999) in [(5, usual), (6, usual), (7, late)] {
        ledger[place].answered_us = ledger[place].sent_us + 99_000;
        let times = answered(&ledger).expect("all are answered");
        assert_eq!(times.of_share(0.999), longest_of_999);
        assert_eq!((times.of_share(1.0), times.share_above(late)), (late, 0.0));
        assert_eq!(times.share_above(usual) > 0.001, longest_of_999 == late);
    }
    ledger[0].outcome = Outcome::Unanswered;
    assert!(answered(&ledger).is_err());
    assert!(answered(&[]).is_err(), "nothing is no proof");
    assert!(nothing_broke(&ledger).is_err());
    ledger[0].outcome = Outcome::Panicked;
    assert!(nothing_broke(&ledger).is_err());
    assert_eq!(outcomes(&ledger)["allowed-store"], 1_999);
    assert_eq!(nothing_broke(&ledger[1..]), Ok(()));
}

/// Bands of 100 below 1000: 900 to 1000, and 800 to 900.
#[test]
fn a_reply_to_another_call_is_detected() {
    let reported = |key, outcome, remaining| Entry {
        remaining: Some(remaining),
        ..entry(key, outcome, 0)
    };
    for (what, last, expected) in [
        ("its own", reported(1, ALLOWED, 898), Some(4)),
        ("of key 0", reported(1, ALLOWED, 901), None),
        ("of key 1", reported(0, ALLOWED, 899), None),
        ("twice", reported(0, ALLOWED, 998), None),
        ("a denial", reported(0, DENIED, 998), Some(3)),
    ] {
        let [one, other] = [999, 998].map(|left| reported(0, ALLOWED, left));
        let ledger = [one, other, reported(1, ALLOWED, 899), last];
        assert_eq!(own_replies(&ledger, 1_000, 100).ok(), expected, "{what}");
    }
    assert!(own_replies(&[], 1_000, 100).is_err(), "nothing is no proof");
}

#[test]
fn a_missing_charge_and_a_surplus_charge_are_detected() {
    let ledger = [
        entry(1, ALLOWED, 0),
        entry(1, ALLOWED, 1),
        entry(1, Outcome::Timeout, 2),
        entry(1, DENIED, 3),
        entry(1, Outcome::Overloaded, 4),
        entry(2, Outcome::HungUp, 5),
    ];
    for (one, two, attempts, surplus) in [
        (2, 0, 1, Some(0)),
        (3, 1, 1, Some(2)),
        // Admitted and not charged, charged for nothing, and charged twice.
        (1, 0, 1, None),
        (4, 0, 1, None),
        (2, 2, 1, None),
        (4, 2, 2, Some(4)),
    ] {
        let charges = HashMap::from([(1, one), (2, two)]);
        let found = charged(&ledger, &charges, attempts);
        assert_eq!(found.clone().ok(), surplus, "{found:?}");
    }
    assert!(charged(&[], &HashMap::new(), 1).is_err());
}

#[test]
fn a_process_that_never_recovers_is_detected() {
    let of = |process, outcome, sent_us| Entry {
        process,
        ..entry(1, outcome, sent_us)
    };
    let mut ledger = vec![
        of(0, ALLOWED, 10),
        of(1, ALLOWED, 10),
        of(0, Outcome::Timeout, 1_000_000),
        of(0, DENIED, 1_500_000),
        of(1, Outcome::Denied(By::Local), 1_500_000),
    ];
    assert!(resumed(&ledger, 1_000_000).is_err(), "of process 1");
    ledger.push(of(1, ALLOWED, 1_900_000));
    let took = resumed(&ledger, 1_000_000);
    assert_eq!(took, Ok(Duration::from_micros(900_100)));
    assert!(resumed(&[], 0).is_err(), "nothing is no proof");
}
