//! What changes the control document: `ban`, `unban`, `override`, `clear`, `mode`; and `control`.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tower_throttle::{
    RedisStore,
    control::{Action, Entry, Mode},
};

use crate::{
    run::{File, run},
    support::RedisServer,
};

fn file(server: &RedisServer) -> File {
    File::new(&format!(
        "version = 1\n[store]\nredis = {:?}\n\
         [[policy]]\nname = \"plan\"\nquota = \"10 per hour\"\nkey = \"header:x-api-key\"\n",
        server.url()
    ))
}

/// Reads the document as the application does.
async fn entries(server: &RedisServer) -> Vec<Entry> {
    let builder = RedisStore::builder().timeout(Duration::from_secs(10));
    let store = builder.connect(&server.url()).expect("a store");
    let control = store.control();
    control.refresh().await.expect("the document");
    control.entries()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ban_is_made_listed_and_ended() {
    let server = RedisServer::start();
    let file = file(&server);
    let signed = [
        "--author",
        "ann",
        "--because",
        "scraping",
        "--label",
        "Bob's shop",
    ];
    let ban = [
        &["ban", file.path(), "plan", "k1", "--for", "1h"][..],
        &signed,
    ]
    .concat();
    let made = run(&ban).with_code(0).out;
    assert!(
        made.contains(", label Bob's shop, until 2")
            && made.ends_with(", author ann, reason scraping\n"),
        "{made}"
    );
    let [entry] = &entries(&server).await[..] else {
        panic!("one entry");
    };
    assert!(
        matches!(&entry.action, Action::Ban { policy, .. } if policy == "plan"),
        "{entry:?}"
    );
    let left = entry
        .until
        .expect("an end")
        .duration_since(SystemTime::now())
        .expect("later");
    assert!((3_500..=3_600).contains(&left.as_secs()), "{left:?}");

    let peek = run(&["peek", "--json", file.path(), "plan", "k1"])
        .with_code(1)
        .json();
    assert_eq!(
        (&peek["banned"], &peek["remaining"]),
        (&json!(true), &json!(10))
    );
    assert_eq!(peek["entries"][0]["reason"], "scraping");
    run(&["peek", file.path(), "plan", "k2"]).with_code(0);
    let list = run(&["control", "--json", file.path()]).with_code(0).json();
    assert_eq!(
        (
            &list["entries"][0]["kind"],
            list["version"].as_u64() > Some(0)
        ),
        (&json!("ban"), true)
    );
    assert_eq!(list["entries"][0]["label"], "Bob's shop");

    let fingerprint = peek["fingerprint"].as_str().expect("a fingerprint");
    run(&["unban", file.path(), "plan", fingerprint]).with_code(0);
    let again = run(&["unban", "--json", file.path(), "plan", "k1"])
        .with_code(1)
        .json();
    assert_eq!(again, json!({ "changed": false }));
    assert_eq!(
        run(&["control", file.path()]).with_code(0).out,
        "no entries\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_felt_by_peek_and_top() {
    let server = RedisServer::start();
    let file = file(&server);
    let change = [
        "override",
        file.path(),
        "plan",
        "k1",
        "--quota",
        "100 per hour",
        "--until",
        "2100-01-01",
    ];
    let made = run(&change).with_code(0).out;
    assert!(
        made.contains(", quota 100 per hour, until 2100-01-01T00:00:00Z"),
        "{made}"
    );
    let peek = run(&["peek", "--json", file.path(), "plan", "k1"])
        .with_code(0)
        .json();
    assert_eq!(
        (&peek["limit"], &peek["quota"]),
        (&json!(100), &json!("100 per hour"))
    );
    let text = run(&["peek", file.path(), "plan", "k1"]).with_code(0).out;
    assert!(
        text.contains("  operator     kind override, policy plan, fingerprint "),
        "{text}"
    );
    run(&["clear", file.path(), "plan", "k1"]).with_code(0);
    run(&["clear", file.path(), "plan", "k1"]).with_code(1);
    let peek = run(&["peek", "--json", file.path(), "plan", "k1"])
        .with_code(0)
        .json();
    assert_eq!(peek["limit"], 10);
    let change = [
        "override",
        file.path(),
        "plan",
        "k1",
        "--quota",
        "100 per fortnigt",
    ];
    let wrong = run(&change).with_code(2);
    assert!(wrong.err.contains("fortnigt"), "{wrong:?}");
    // A quota that no process could follow.
    let costly = File::new(&format!(
        "version = 1\n[store]\nredis = {:?}\n[[policy]]\nname = \"plan\"\n\
         quota = \"10 per hour\"\nkey = \"header:x-api-key\"\ncost = 10\n",
        server.url()
    ));
    let change = [
        "override",
        costly.path(),
        "plan",
        "k1",
        "--quota",
        "5 per hour",
    ];
    let wrong = run(&change).with_code(2);
    assert!(wrong.err.contains("exceeds the 5 units"), "{wrong:?}");
    run(&["clear", costly.path(), "plan", "k1"]).with_code(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_is_set_and_taken_back() {
    let server = RedisServer::start();
    let file = file(&server);
    run(&["mode", file.path(), "plan", "shadow", "--until", "7d"]).with_code(0);
    run(&[
        "mode",
        file.path(),
        "plan",
        "off",
        "--because",
        "incident 7",
    ])
    .with_code(0);
    let [entry] = &entries(&server).await[..] else {
        panic!("one entry");
    };
    assert!(
        matches!(
            entry.action,
            Action::Mode {
                mode: Mode::Off,
                ..
            }
        ),
        "{entry:?}"
    );
    assert_eq!(
        (entry.until, entry.reason.as_deref()),
        (None, Some("incident 7"))
    );
    run(&["mode", file.path(), "plan", "default"]).with_code(0);
    run(&["mode", file.path(), "plan", "default"]).with_code(1);
    assert_eq!(entries(&server).await, []);
    run(&["mode", file.path(), "plan", "sleepy"]).with_code(2);
    let unknown = run(&["mode", file.path(), "plam", "off"]).with_code(2);
    assert!(unknown.err.contains("it has plan"), "{unknown:?}");
}
