//! A page and an API for operators of [tower-throttle]'s limits. They show which limits are in force
//! and why a caller is denied, and can let the caller in.
//!
//! ```
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use tower_throttle::{RateLimitLayer, TokenBucket};
//! use tower_throttle_admin::{Access, Admin};
//!
//! let limits = RateLimitLayer::new(TokenBucket::per_second(10).burst(20));
//! // Only for programs and browsers on this machine, and read-only.
//! let admin = Admin::new(&limits).access(Access::loopback());
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(limits)
//!     .nest_service("/admin", admin.into_router());
//! # drop(app.into_make_service_with_connect_info::<SocketAddr>());
//! ```
//!
//! **Where.** [`into_router`](Admin::into_router) returns an [`axum::Router`]: nest it, or serve it
//! on a listener of its own, which is the safest place. With `nest_service("/admin", ..)`, both
//! `/admin` and `/admin/` are the page; with `nest("/admin", ..)`, the first one is. Add it after
//! the application's own layers, so that these do not limit the operator.
//!
//! **Access.** An [`Access`] chooses who may see the page. There is no default, and without one there
//! is no router. Changes are possible only after [`allow_changes`](Admin::allow_changes). [Attacks]
//! lists the attacks that the page stops, and those that you must stop.
//!
//! **Programs** use the same [API] as the page.
//!
//! # Words
//!
//! The words of [tower-throttle's glossary] apply here. These are added:
//!
//! | word | meaning |
//! |---|---|
//! | target | the limits on a page: a layer, a limiter, or all of a file |
//! | access | the rule that admits visitors to the page |
//! | token | the secret of [`Access::bearer`], as a program or the login form sends it |
//! | session | a cookie with an end, which a browser receives for the token |
//! | look-up | a request for the effect of each policy on one caller |
//! | change | a reset, a ban, another quota or a mode, made by an operator |
//! | sample | the counts of one second. The sampler takes one a second while the page is viewed |
//!
//! [tower-throttle]: https://docs.rs/tower-throttle
//! [tower-throttle's glossary]: https://github.com/tower-throttle/tower-throttle/blob/main/ARCHITECTURE.md#words
//! [Attacks]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/admin_security/
//! [API]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/admin_api/

// Library code must not panic on any input. Tests may.
#![doc(test(attr(deny(warnings), allow(dead_code, unused_variables))))]
#![warn(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod access;
mod access_error;
mod api;
mod attempts;
mod base;
mod bearer;
mod body;
mod events;
mod hosts;
mod login;
mod loopback;
mod origin;
mod page;
mod problem;
mod router;
mod shared;
mod target;
#[cfg(any(test, doctest))]
#[allow(clippy::panic)]
mod tests;
mod time;
mod who;

use std::{fmt, sync::Arc};

use tower_throttle::{Clock, control::Control, inspect::Inspectable};

pub use self::{access::Access, access_error::AccessError, who::Who};
use self::{attempts::Attempts, shared::Shared};

/// The version that the page and the API show.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the admin page and its API: see the [crate](self).
///
/// `A` is `()` until [`access`](Self::access) was called, and there is no router before:
///
/// ```compile_fail,E0599
/// use tower_throttle::{Limiter, MemoryStore, TokenBucket};
/// use tower_throttle_admin::Admin;
///
/// let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(10));
/// let _router = Admin::new(&limiter).into_router();
/// ```
#[must_use = "it is served once `into_router` made a router of it"]
pub struct Admin<A = ()> {
    shared: Shared,
    access: A,
}

impl Admin {
    /// Starts with a layer, a limiter, or all of a configuration file.
    pub fn new(target: &(impl Inspectable + Clone)) -> Self {
        // It is replaced before there is a router.
        let shared = Shared::new(Access::check(|_| None));
        let access = ();
        Self { shared, access }.target(target)
    }
}

impl<A> Admin<A> {
    /// Adds another layer or limiter, or all of another configuration file. The page shows a target
    /// once, even if it was added twice.
    pub fn target(mut self, target: &(impl Inspectable + Clone)) -> Self {
        self.shared.targets.push(target.clone());
        self
    }

    /// Sets the control document in which bans, overrides and modes are made. Default: that of the
    /// configuration file, if one was given and its store has one. Without a document, the page can
    /// only look callers up and reset them.
    pub fn control(mut self, control: &Control) -> Self {
        self.shared.control = Some(control.clone());
        self
    }

    /// Chooses who may see the page, and who may make changes if
    /// [`allow_changes`](Self::allow_changes) is set.
    pub fn access(self, access: Access) -> Admin<Access> {
        let shared = self.shared;
        Admin { shared, access }
    }

    /// Allows changes: to reset and ban callers, override quotas, and switch modes of policies.
    /// Default: the page is read-only. With [`Access::loopback`] it stays read-only: use
    /// [`Access::loopback_with_changes`].
    pub const fn allow_changes(mut self) -> Self {
        self.shared.changes = true;
        self
    }

    /// Lists the host names of the page, without ports: `["limits.example"]`. They stop DNS rebinding:
    /// another site can let its own name resolve to this server, and would then share the page's
    /// origin.
    ///
    /// | access | hosts that the page accepts by default | with a list |
    /// |---|---|---|
    /// | [`loopback`](Access::loopback) | `localhost`, `127.0.0.1` and `[::1]` | these, too |
    /// | [`bearer`](Access::bearer) | every name: another site has neither the cookie nor the secret | only these |
    /// | [`check`](Access::check) | addresses and `localhost` | only these |
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let hosts = hosts.into_iter();
        let hosts = hosts.map(|host| host.as_ref().to_ascii_lowercase());
        self.shared.hosts.extend(hosts);
        self
    }

    /// Reads the time from `clock`, in tests for example: for the end of sessions and for the limits
    /// of the page itself. Default: the machine's clock.
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        let clock: Arc<dyn Clock> = clock;
        self.shared.attempts = Attempts::new(Some(&clock));
        self.shared.clock = Some(clock);
        self
    }
}

impl Admin<Access> {
    /// Returns the page and its API as a router.
    pub fn into_router(self) -> axum::Router {
        let (mut shared, access) = (self.shared, self.access);
        if shared.changes && !access.may_change() {
            shared.changes = false;
            events::changes_not_allowed();
        }
        if shared.control.is_none() {
            shared.control = shared.targets.control();
        }
        shared.access = access;
        router::build(shared)
    }
}

impl<A> fmt::Debug for Admin<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
