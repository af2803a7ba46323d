//! Texts that hold no secret: those of `Debug`, of errors and of the log.

use tower_throttle_admin::{Access, Admin};

use super::{App, SECRET, STATUS, get, login, post};
use crate::{logged, support::prelude::*};

#[test]
fn no_debug_output_holds_the_secret() {
    let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(1));
    let access = Access::bearer(SECRET).unwrap();
    let admin = Admin::new(&limiter).access(access.clone());
    for text in [
        format!("{access:?} {access:#?}"),
        format!("{admin:?} {admin:#?}"),
    ] {
        assert!(!text.contains("horse"), "{text}");
        // Nor the bytes of a hash of it.
        assert!(text.len() < 100, "{text}");
    }
    for secret in ["horse-staple", "horse staple is a long secret"] {
        let error = Access::bearer(secret).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("horse"), "{text}");
    }
}

#[tokio::test]
async fn no_log_and_no_error_holds_the_secret_or_a_guess() {
    logged::start();
    let app = App::bearer();
    let session = app.log_in().await;
    let (_, mac) = session.split_once('.').unwrap();
    let mut answers = vec![app.ask(&get(STATUS).bearer(SECRET)).await];
    for guess in ["guess-1", "guess-2", "guess\nERROR forged"] {
        answers.push(app.ask(&login(guess)).await);
        answers.push(
            app.ask(&get(STATUS).bearer(&guess.replace('\n', " ")))
                .await,
        );
    }
    let bodies = r#"{"token":"guess-3" {"guess-4":1} {"token":["guess-5"]}"#;
    for body in bodies.split(' ') {
        answers.push(app.ask(&post("/admin/session", body)).await);
    }
    let log = logged::so_far();
    assert!(log.contains("admin session began peer=127.0.0.1"), "{log}");
    assert!(log.contains("too many wrong tokens"), "{log}");
    let texts = answers.iter().map(|answer| format!("{answer:?}"));
    for text in texts.chain([log]) {
        for secret in [SECRET, "guess", "forged", mac] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
