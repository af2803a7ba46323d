//! The access to the page.

use std::{env, fmt, sync::Arc};

use tower_throttle::{Key, RequestHead};

use super::{
    access_error::AccessError,
    attempts::{Attempts, peer},
    bearer::{Bearer, presented},
    hosts::{is_address, is_listed, is_local},
    loopback,
    problem::{Code, Problem},
    who::Who,
};

/// Chooses who may see the admin page, and who may make changes if the page allows changes.
///
/// | access | for | author of changes |
/// |---|---|---|
/// | [`loopback`](Self::loopback), [`loopback_with_changes`](Self::loopback_with_changes) | a listener that only this machine can reach | `loopback` |
/// | [`bearer`](Self::bearer) | operators and scripts that have a secret | `operator` |
/// | [`check`](Self::check) | applications with users of their own | what the check returns |
///
/// `docs/admin-security.md` lists known attacks, and what stops each.
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Loopback { may_change: bool },
    Bearer(Arc<Bearer>),
    Check(Arc<Check>),
}

type Check = dyn Fn(&RequestHead<'_>) -> Option<Who> + Send + Sync;

impl Access {
    /// Gives access to programs and browsers on the machine of the server.
    ///
    /// Three conditions must hold:
    ///
    /// - the socket's peer has a loopback address;
    /// - the request names its host `localhost`, `127.0.0.1` or `[::1]`, which a page of another site
    ///   cannot achieve with its own DNS;
    /// - no header field of a proxy is present, such as `Forwarded`, `X-Forwarded-For` or `Via`.
    ///
    /// Requests of HTTP/1.0 are denied, too: nginx sends HTTP/1.0 without such a field, unless it is
    /// configured to keep connections open.
    ///
    /// The page is read-only: [`loopback_with_changes`](Self::loopback_with_changes) allows changes.
    ///
    /// **The danger** is a proxy or tunnel on the same machine that adds no such field: HAProxy
    /// without `option forwardfor`, nginx with `proxy_http_version 1.1` (which `keepalive` in an
    /// upstream needs, and which is the default from 1.29.7 on), `ssh -R`, `socat`. Every client of
    /// that proxy has access. Serve the page on a listener of its own that no proxy forwards to.
    /// All users of the machine have access, too.
    ///
    /// The server must pass the peer's address
    /// (`into_make_service_with_connect_info::<SocketAddr>()`). Without it, the response is 500.
    #[must_use]
    pub fn loopback() -> Self {
        Self(Kind::Loopback { may_change: false })
    }

    /// Gives access as [`loopback`](Self::loopback) does, and allows changes if
    /// [`allow_changes`](crate::Admin::allow_changes) is set.
    ///
    /// **The danger** is greater here: all users of the machine, and all clients of a proxy that adds
    /// no field, can ban callers and lift limits.
    #[must_use]
    pub fn loopback_with_changes() -> Self {
        Self(Kind::Loopback { may_change: true })
    }

    /// Gives access to clients that know a secret of at least 16 characters:
    /// `openssl rand -hex 32` makes one.
    ///
    /// ```
    /// use tower_throttle_admin::Access;
    ///
    /// let access = Access::bearer("made-by-openssl-rand-hex-32")?;
    /// let error = Access::bearer("short").unwrap_err();
    /// assert_eq!(error.code(), "access-secret-too-short");
    /// # Ok::<(), tower_throttle_admin::AccessError>(())
    /// ```
    ///
    /// Programs send it as `Authorization: Bearer ..`. People type it into the page, once in 12
    /// hours. The page exchanges it for a cookie that scripts cannot read, and that each process with
    /// the same secret accepts. A logout ends the session in the process that it reaches. To end all
    /// sessions, change the secret.
    ///
    /// Browsers send the cookie to all ports of the host: another application there receives it, and
    /// can use it. Give the page a host name of its own, and list it in
    /// [`Admin::hosts`](crate::Admin::hosts).
    ///
    /// In any minute, five wrong secrets are compared from one peer, and 300 from all peers
    /// together. Further secrets are denied, even the right one. Sessions continue meanwhile.
    /// Behind a proxy, all clients have one peer address, so five guesses a minute keep others
    /// from logging in.
    ///
    /// **The danger** is plain HTTP: anyone on the network path can read the secret and the cookie.
    /// Browsers keep the cookie only from HTTPS and from `localhost`.
    ///
    /// # Errors
    ///
    /// Returns an error if the secret has fewer than 16 characters, or one that no header field
    /// can carry: only printable ASCII without spaces can be used.
    pub fn bearer(secret: impl AsRef<str>) -> Result<Self, AccessError> {
        let bearer = Bearer::new(secret.as_ref())?;
        Ok(Self(Kind::Bearer(Arc::new(bearer))))
    }

    /// Does the same as [`bearer`](Self::bearer), with the secret in an environment variable.
    ///
    /// # Errors
    ///
    /// Returns an error if the variable is not set, and those of [`bearer`](Self::bearer).
    pub fn bearer_env(name: &str) -> Result<Self, AccessError> {
        let secret = env::var(name).map_err(|_| {
            let code = "access-variable";
            let message = format!(
                "the environment variable {name:?} for `Access::bearer_env(..)` is not set, or is no text; set it to a secret of 16 characters or more"
            );
            AccessError { code, message }
        })?;
        Self::bearer(secret)
    }

    /// Gives access to requests for which `check` returns an author. It runs for each request, after
    /// the application's own layers, and can read the user that they found.
    ///
    /// ```
    /// use tower_throttle::RequestHead;
    /// use tower_throttle_admin::{Access, Who};
    ///
    /// #[derive(Clone)]
    /// struct User { name: String, is_operator: bool } // your authentication inserts it
    ///
    /// let access = Access::check(|head: &RequestHead<'_>| {
    ///     let user = head.extensions().get::<User>()?;
    ///     user.is_operator.then(|| Who::new(&user.name))
    /// });
    /// ```
    ///
    /// You may use cookies of the application: changes are safe from other sites, whatever their
    /// `SameSite` is. The page accepts only addresses and `localhost` as its host, until
    /// [`Admin::hosts`](crate::Admin::hosts) lists its host name.
    #[must_use]
    pub fn check(check: impl Fn(&RequestHead<'_>) -> Option<Who> + Send + Sync + 'static) -> Self {
        Self(Kind::Check(Arc::new(check)))
    }

    /// Returns whether all users of the machine have access.
    pub(crate) const fn is_for_all_users(&self) -> bool {
        matches!(self.0, Kind::Loopback { .. })
    }

    /// Returns whether those with access may change things, if that is allowed at all.
    pub(crate) const fn may_change(&self) -> bool {
        !matches!(self.0, Kind::Loopback { may_change: false })
    }

    /// Checks the proxy fields and the host of a request.
    pub(crate) fn check_way(
        &self,
        head: &RequestHead<'_>,
        host: Option<&str>,
        hosts: &[String],
    ) -> Result<(), Problem> {
        let is_listed = host.is_some_and(|host| is_listed(hosts, host));
        let is_known = match self.0 {
            Kind::Loopback { .. } => {
                return loopback::check(head, is_listed || host.is_some_and(is_local));
            }
            // The cookie is for another host, and no page of another site knows the secret.
            Kind::Bearer(_) if hosts.is_empty() => true,
            // What the closure reads may be the same for each site that the browser shows.
            Kind::Check(_) if hosts.is_empty() => host.is_some_and(is_address),
            Kind::Bearer(_) | Kind::Check(_) => is_listed,
        };
        Code::HostNotListed.unless(is_known)
    }

    /// Returns the sender of a request, or `None` for a visitor that may log in; and the session, the
    /// user or the peer: calls under one key are counted together.
    pub(crate) async fn visitor(
        &self,
        head: &RequestHead<'_>,
        attempts: &Attempts,
        now_ms: u64,
    ) -> Result<(Option<Who>, Key), Problem> {
        Ok(match &self.0 {
            Kind::Loopback { .. } => (Some(Who::new("loopback")), Key::everyone()),
            Kind::Check(check) => {
                let who = check(head).ok_or(Code::NoAccess)?;
                let key = Key::from(who.name());
                (Some(who), key)
            }
            Kind::Bearer(bearer) => {
                let operator = Some(Who::new("operator"));
                if let Some(session) = bearer.find_session(head.headers(), now_ms) {
                    return Ok((operator, Key::from(session)));
                }
                let Some(token) = presented(head.headers()) else {
                    return Ok((None, peer(head)));
                };
                attempts.check_token(bearer, token.as_bytes(), head).await?;
                (operator, peer(head))
            }
        })
    }

    /// Returns the secret, if there is one.
    pub(crate) fn secret(&self) -> Option<&Bearer> {
        let Kind::Bearer(bearer) = &self.0 else {
            return None;
        };
        Some(bearer)
    }
}

impl fmt::Debug for Access {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}
