//! The names of buckets in Redis: stable across versions and machines, and without anything
//! that a client sends.
//!
//! The hashes were computed by another implementation of BLAKE3.

use std::net::IpAddr;

use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::prelude::*;

/// Returns a limiter. Naming a key needs no server.
fn limiter(builder: RedisStoreBuilder, name: &str) -> (Runtime, Limiter) {
    let runtime = Runtime::new().expect("a runtime");
    let inside = runtime.enter();
    let store = builder.connect("redis://127.0.0.1:1/").expect("a store");
    drop(inside);
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new(name, TokenBucket::per_second(1)))
        .policy(Policy::new("day", FixedWindow::per_day(1)))
        .policy(Policy::new("everyone", TokenBucket::per_second(1)).shared())
        .build()
        .expect("a limiter");
    (runtime, limiter)
}

#[test]
fn names_of_keys_have_not_changed() {
    let address = |text: &str| Key::from(text.parse::<IpAddr>().expect("an address"));
    let keys: [Key; 8] = [
        "user-42".into(),
        "".into(),
        Key::everyone(),
        7.into(),
        address("203.0.113.9"),
        address("2001:db8::"),
        ("ab", "c").into(),
        ("a", "bc").into(),
    ];
    // Without a secret, and with one.
    let hashes = [
        ("5SwL_AUYsIN9PShb_mhg4g", "xlYljN31NVIwSOVBklHbLQ"),
        ("hGN45vw3msIZEeUg40wOzA", "Ylzyg_kTwhzG3SA47nu6FQ"),
        ("rxNJufX5oaagQE3qNtzJSQ", "fYHpcZNIjT__RA8TuNVQqA"),
        ("3NNgulnJJNrCu1P9dbkkZQ", "UoPCvTG_8Hpr7xqP_iS9Hg"),
        ("5jILotTlV9tem-3Shjnypw", "kujubVE7BQDhvY2KC6dldw"),
        ("CpDf8fITR7G89UVy91AZOA", "mpVdnUMmFMKwNH4-SkrxPQ"),
        ("Yop48Kv6QH4dQBZ3jZX3QQ", "eY-tclcehaa5Au73gGOGVw"),
        ("tJvGzuNNTd9KXO7cRWTYSg", "cOyJH-NTG6jzPNGPFoUu1g"),
    ];
    let (_runtime, plain) = limiter(hasty(), "api");
    let (_runtime, secret) = limiter(hasty().prefix("shop").secret("correct horse"), "api");
    for (key, (hash, secret_hash)) in keys.into_iter().zip(hashes) {
        let [api, day] = [format!("ttb{{{hash}}}api"), format!("ttw{{{hash}}}day")];
        let everyone = "ttb{rxNJufX5oaagQE3qNtzJSQ}everyone";
        assert_eq!(plain.storage_keys(key.clone()), [&api, &day, everyone]);
        let name = secret.storage_keys(key).remove(0);
        assert_eq!(name, format!("shopb{{{secret_hash}}}api"));
    }
}

proptest! {
    #[test]
    fn a_name_has_one_size_and_one_hash_tag_whatever_the_key(
        bytes in proptest::collection::vec(any::<u8>(), 0..5_000),
        policy in "[ -~]{1,64}",
    ) {
        prop_assume!(!["day", "everyone"].contains(&policy.as_str()));
        let (_runtime, limiter) = limiter(hasty(), &policy);
        let name = limiter.storage_keys(bytes.as_slice()).remove(0);
        prop_assert_eq!(name.len(), "ttb{}".len() + 22 + policy.len());
        let (open, close) = (name.find('{'), name.find('}'));
        prop_assert_eq!((open, close), (Some(3), Some(26)));
        prop_assert!(name.is_ascii());
    }
}

/// Reads buckets as `docs/operating.md` describes it.
#[tokio::test]
async fn redis_shows_what_the_operators_page_documents() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let second = Duration::from_secs(1);
    let at_once = TokenBucket::new(10, 100 * second)
        .burst(30)
        .refill_at_once();
    let policies = [
        Policy::new("b", TokenBucket::per_day(10)),
        Policy::new("w", FixedWindow::per_day(10)),
        Policy::new("i", at_once),
        Policy::new("s", SlidingWindow::new(10, 1_000 * second)),
        Policy::new("g", SlidingLog::new(10, 1_000 * second)),
    ];
    for policy in policies {
        let limiter = Limiter::new(store.clone(), policy.on_store_failure(OnStoreFailure::Deny));
        let taken = limiter.check_n("ann", 4).await.expect("a decision");
        assert_eq!(taken.charged(), 4);
        let key = limiter.storage_keys("ann").remove(0);
        let (letter, shown) = (&key[2..3], server.command(&["GET", &key]));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_so = match letter {
            "b" => {
                let page = include_str!("../../docs/operating.md");
                let script = page.split("redis-cli EVAL \"").nth(2).expect("the command");
                let script = script.split("\" 1 ").next().expect("its end");
                let read = server.command(&["EVAL", script, "1", &key]);
                let all = "8640000000000 ns for each token";
                shown.starts_with('B') && read.starts_with("full at ") && read.ends_with(all)
            }
            "w" | "i" => shown.len() == 14 && is_number(&shown) && shown.ends_with('4'),
            "s" => shown.len() == 16 && is_number(&shown) && shown.starts_with("111140"),
            _ => shown.starts_with('L'),
        };
        assert!(is_so && key.ends_with(letter), "{key}: {shown}");
    }
}
