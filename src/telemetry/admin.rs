//! Under `tower_throttle::admin`: the admin page.

use std::net::IpAddr;

/// Logs that somebody logged in to the admin page.
pub(crate) fn admin_session_began(peer: Option<IpAddr>) {
    tell!(
        info,
        "admin",
        peer = peer.map(tracing::field::display),
        "admin session began"
    );
}

/// Logs that too many wrong tokens came from one address.
pub(crate) fn admin_attempts_denied(peer: Option<IpAddr>) {
    tell!(
        warn,
        "admin",
        peer = peer.map(tracing::field::display),
        "too many wrong tokens for the admin page; tokens from this address are denied for up to a minute"
    );
}

/// Logs that too many wrong tokens came from all addresses together.
pub(crate) fn admin_attempts_of_all_denied() {
    tell!(
        warn,
        "admin",
        "too many wrong tokens for the admin page from all addresses; all tokens are denied for up to a minute, sessions continue"
    );
}

/// Logs what an operator changed, or may have changed. `before` and `after` describe the policy, and
/// what it does with the caller.
pub(crate) fn admin_change(
    who: &str,
    action: &str,
    policy: &str,
    fingerprint: &str,
    before: &str,
    after: &str,
) {
    tell!(
        info,
        "admin",
        who,
        action,
        policy,
        fingerprint,
        before,
        after,
        "an operator made a change"
    );
}
