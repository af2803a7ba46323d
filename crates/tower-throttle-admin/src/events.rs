//! All log events of this crate: under the target `tower_throttle::admin`. None holds a key or a secret.

use std::net::IpAddr;

/// Logs a login to the admin page.
pub(crate) fn session_began(peer: Option<IpAddr>) {
    tracing::info!(
        target: "tower_throttle::admin",
        peer = peer.map(tracing::field::display),
        "admin session began"
    );
}

/// Logs that too many wrong tokens came from one address.
pub(crate) fn attempts_denied(peer: Option<IpAddr>) {
    tracing::warn!(
        target: "tower_throttle::admin",
        peer = peer.map(tracing::field::display),
        "too many wrong tokens for the admin page; tokens from this address are denied for up to a minute"
    );
}

/// Logs that too many wrong tokens came from all addresses together.
pub(crate) fn attempts_of_all_denied() {
    tracing::warn!(
        target: "tower_throttle::admin",
        "too many wrong tokens for the admin page from all addresses; all tokens are denied for up to a minute, sessions continue"
    );
}

/// Logs that changes were allowed for an access that does not have them.
pub(crate) fn changes_not_allowed() {
    tracing::warn!(
        target: "tower_throttle::admin",
        "the admin page is read-only, because Access::loopback() was given to it; Access::loopback_with_changes() allows changes"
    );
}

/// Logs what an operator changed, or may have changed. `seen`: the policy, and what it does with the
/// caller, before and after.
pub(crate) fn change(who: &str, action: &str, policy: &str, fingerprint: &str, seen: [&str; 2]) {
    let [before, after] = seen;
    tracing::info!(
        target: "tower_throttle::admin",
        who, action, policy, fingerprint, before, after,
        "an operator made a change"
    );
}

#[cfg(test)]
mod tests {
    use crate::tests::read_page;

    #[test]
    fn every_line_of_the_log_is_in_the_runbook() {
        let Some(page) = read_page("docs/runbook.md") else {
            return;
        };
        let code = include_str!("events.rs").split("#[cfg(test)]").next();
        let calls = code.unwrap_or_default().split("tracing::").skip(1);
        let calls = calls.filter(|call| call.contains("target: "));
        let lines = calls.filter_map(|call| call.split(");\n").next()?.rsplit('"').nth(1));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 5, "{lines:?}");
        for line in lines {
            assert!(page.contains(line), "{line:?} is not in the runbook");
        }
    }
}
