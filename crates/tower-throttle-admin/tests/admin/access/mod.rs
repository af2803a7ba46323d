//! The frame of the admin page: who gets in, and what no other can do. `docs/admin-security.md` lists
//! the attacks with these tests.

mod attacks;
mod bearer;
mod bodies;
mod calls;
mod check;
mod guesses;
mod hosts;
mod loopback;
mod origins;
mod random;
mod responses;
mod secrets;
mod server;

use axum::Router;
use http::StatusCode;
use tower_throttle_admin::{Access, Admin};

use crate::asked::{Answer, Asked, ask, form, get, post};
use crate::support::prelude::*;

const SECRET: &str = "correct-horse-battery-staple";
/// A change, and its body.
const RESET: &str = "/admin/api/v1/reset";
const ANN: &str = r#"{"caller":"ann"}"#;
const STATUS: &str = "/admin/api/v1/status";
/// All changes.
const CHANGES: &str = "reset ban unban override clear-override mode clear-mode";

/// An admin page at `/admin`, of a limiter that denies `ann`.
struct App {
    router: Router,
    limiter: Limiter,
    clock: Arc<ManualClock>,
}

impl App {
    fn new(access: Access) -> Self {
        Self::with(access, Admin::allow_changes)
    }

    fn with(access: Access, set: impl FnOnce(Admin<Access>) -> Admin<Access>) -> Self {
        let once = Policy::new("once", FixedWindow::per_day(1));
        let limiter = Limiter::new(MemoryStore::new(), once);
        assert!(limiter.check_now("ann").expect("an answer").is_allowed());
        let clock = Arc::new(ManualClock::new());
        let admin = Admin::new(&limiter).access(access).clock(clock.clone());
        let router = Router::new().nest("/admin", set(admin).into_router());
        Self {
            router,
            limiter,
            clock,
        }
    }

    fn loopback() -> Self {
        Self::new(Access::loopback_with_changes())
    }

    fn bearer() -> Self {
        Self::new(Access::bearer(SECRET).expect("a secret"))
    }

    /// Returns one whose page is read-only.
    fn reading() -> Self {
        Self::with(Access::loopback(), |admin| admin)
    }

    async fn ask(&self, asked: &Asked) -> Answer {
        asked.send(&self.router).await
    }

    /// Sends a request, and expects an error of this status and code.
    async fn denies(&self, asked: &Asked, status: u16, code: &str) -> Answer {
        let answer = self.ask(asked).await;
        answer.assert_is(status, code);
        answer
    }

    /// Sends a request, and expects success.
    async fn allows(&self, asked: &Asked) -> Answer {
        let answer = self.ask(asked).await;
        answer.assert_done();
        answer
    }

    /// Logs in, and returns the cookie.
    async fn log_in(&self) -> String {
        let answer = self.ask(&login(SECRET)).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
        let cookie = answer.field("set-cookie");
        cookie.split(';').next().expect("a cookie").to_owned()
    }

    /// Returns whether a request has reset `ann`.
    fn was_reset(&self) -> bool {
        let decision = self.limiter.check_now("ann").expect("an answer");
        decision.is_allowed()
    }
}

/// The login of a program.
fn login(token: &str) -> Asked {
    post("/admin/session", serde_json::json!({ "token": token }))
}
