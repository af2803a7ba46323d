//! The session of a browser, with a secret.

use tower_throttle_admin::Access;

use crate::{
    app::{App, Options},
    browser::Tab,
    page::{css, wait_until_live},
};

pub(crate) const SECRET: &str = "correct-horse-battery-staple";

pub(crate) fn with_secret() -> Options {
    Options {
        access: Access::bearer(SECRET).expect("a long secret"),
        ..Options::default()
    }
}

#[track_caller]
fn send_token(tab: &Tab, token: &str) {
    tab.wait_until("document.getElementById('token') !== null");
    tab.fill(&css("#token"), token);
    tab.click(&css("form.card button[type=submit]"));
}

#[track_caller]
pub(crate) fn sign_in(tab: &Tab, token: &str) {
    send_token(tab, token);
    wait_until_live(tab);
}

#[test]
fn a_session_begins_with_the_right_token_only_and_ends() {
    let Some(mut tab) = Tab::open() else { return };
    let app = App::start(with_secret());
    tab.navigate(&app.admin());
    send_token(&tab, "wrong");
    tab.wait_until("document.getElementById('message').textContent !== ''");
    assert_eq!(app.statuses("POST /admin/session"), [401]);
    tab.assert_is("document.getElementById('policies') === null", true);
    tab.expect_problem("the server responded with a status of 401");
    sign_in(&tab, SECRET);
    // Scripts cannot read the cookie.
    assert_eq!(tab.text("document.cookie"), "");
    tab.assert_is("localStorage.length + sessionStorage.length", 0);
    tab.reload();
    wait_until_live(&tab);
    tab.click(&css("form[action$=session-end] button"));
    tab.wait_until("document.getElementById('token') !== null");
    tab.reload();
    tab.assert_is("document.getElementById('token') !== null", true);
    assert_eq!(tab.problems(), [""; 0]);
}
