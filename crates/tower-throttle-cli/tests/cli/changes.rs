//! What changes the control document: `ban`, `unban`, `override`, `clear`, `mode`; and `control`.

use std::time::SystemTime;

use serde_json::json;
use tower_throttle::control::{Action, Entry, Mode};

use crate::{
    run::File,
    support::{RedisServer, stores::store_at},
};

/// A file with a policy that has these fields, too.
fn file_with(server: &RedisServer, fields: &str) -> File {
    File::new(&format!(
        "version = 1\nstore = {{ redis = {:?} }}\n[[policy]]\nname = \"plan\"\n\
         quota = \"10 per hour\"\nkey = \"header:x-api-key\"\n{fields}",
        server.url()
    ))
}

fn file(server: &RedisServer) -> File {
    file_with(server, "")
}

/// Reads the document as the application does.
async fn entries(server: &RedisServer) -> Vec<Entry> {
    let control = store_at(&server.url()).control();
    control.refresh().await.expect("the document");
    control.entries()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ban_is_made_listed_and_ended() {
    let server = RedisServer::start();
    let file = file(&server);
    let signed = r#"--author ann --because scraping --label "Bob's shop""#;
    let made = file.run(&format!("ban FILE plan k1 --for 1h {signed}"), 0);
    made.says(&[", label Bob's shop, until 2"]);
    assert!(made.out.ends_with(", author ann, reason scraping\n"));
    let entries = entries(&server).await;
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    let is_ban = matches!(&entry.action, Action::Ban { policy, .. } if policy == "plan");
    assert!(is_ban, "{entry:?}");
    let left = entry.until.expect("an end");
    let left = left.duration_since(SystemTime::now()).expect("later");
    assert!((3_500..=3_600).contains(&left.as_secs()), "{left:?}");

    let banned = json!({ "banned": true, "remaining": 10, "entries": [{ "reason": "scraping" }] });
    let peek = file.run("peek --json FILE plan k1", 1).has(&banned);
    file.run("peek FILE plan k2", 0);
    let listed = json!({ "entries": [{ "kind": "ban", "label": "Bob's shop" }] });
    let list = file.run("control --json FILE", 0).has(&listed);
    assert!(list["version"].as_u64() > Some(0));

    let fingerprint = peek["fingerprint"].as_str().expect("a fingerprint");
    file.run(&format!("unban FILE plan {fingerprint}"), 0);
    let again = file.run("unban --json FILE plan k1", 1).json();
    assert_eq!(again, json!({ "changed": false }));
    assert_eq!(file.run("control FILE", 0).out, "no entries\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_felt_by_peek_and_top() {
    let server = RedisServer::start();
    let file = file(&server);
    let change = r#"override FILE plan k1 --quota "100 per hour" --until 2100-01-01"#;
    file.run(change, 0)
        .says(&[", quota 100 per hour, until 2100-01-01T00:00:00Z"]);
    file.run("peek --json FILE plan k1", 0)
        .has(&json!({ "limit": 100, "quota": "100 per hour" }));
    file.run("peek FILE plan k1", 0)
        .says(&["  operator     kind override, policy plan, fingerprint "]);
    file.run("clear FILE plan k1", 0);
    file.run("clear FILE plan k1", 1);
    file.run("peek --json FILE plan k1", 0)
        .has(&json!({ "limit": 10 }));
    let unknown = r#"override FILE plan k1 --quota "100 per fortnigt""#;
    file.run(unknown, 2).says(&["fortnigt"]);
    // A quota that no process could follow.
    let costly = file_with(&server, "cost = 10\n");
    let change = r#"override FILE plan k1 --quota "5 per hour""#;
    costly.run(change, 2).says(&["exceeds the 5 units"]);
    costly.run("clear FILE plan k1", 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_is_set_and_taken_back() {
    let server = RedisServer::start();
    let file = file(&server);
    file.run("mode FILE plan shadow --until 7d", 0);
    file.run(r#"mode FILE plan off --because "incident 7""#, 0);
    let made = entries(&server).await;
    let said = made.iter().map(|entry| {
        let is_off = matches!(
            entry.action,
            Action::Mode {
                mode: Mode::Off,
                ..
            }
        );
        (is_off, entry.until, entry.reason.as_deref())
    });
    let expected = (true, None, Some("incident 7"));
    assert_eq!(said.collect::<Vec<_>>(), [expected]);
    file.run("mode FILE plan default", 0);
    file.run("mode FILE plan default", 1);
    assert_eq!(entries(&server).await, []);
    file.run("mode FILE plan sleepy", 2);
    file.run("mode FILE plam off", 2).says(&["it has plan"]);
}

/// A label that is pasted from elsewhere, or chosen by the caller that it names.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_cannot_control_a_terminal() {
    let server = RedisServer::start();
    let file = file(&server);
    let label = "Bob\u{202e}\u{2028}bob: fine";
    let made = file.run(&format!("ban FILE plan k1 --for 1h --label \"{label}\""), 0);
    for run in [
        made,
        file.run("control FILE", 0),
        file.run("peek FILE plan k1", 1),
    ] {
        run.says(&["label Bob\u{fffd}\u{fffd}bob: fine,"]);
        assert!(!run.out.contains(['\u{202e}', '\u{2028}']), "{run:?}");
    }
    let json = file.run("control --json FILE", 0);
    assert!(!json.out.contains(['\u{202e}', '\u{2028}']), "{json:?}");
    json.has(&json!({ "entries": [{ "label": label }] }));
}
