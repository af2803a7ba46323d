//! Under `tower_throttle::control`: the control document.

use crate::StoreError;

#[cfg(feature = "tracing")]
const TARGET: &str = "tower_throttle::control";

/// Logs a new version of the control document.
pub(crate) fn control_applied(version: u64, entries: usize) {
    tell!(info, version, entries, "control document applied");
}

/// Logs an entry that does not apply, once for each version.
pub(crate) fn control_not_taken(why: &str, version: u64) {
    tell!(
        warn,
        version,
        "part of the control document not applied ({why}); the rest applies"
    );
}

/// Logs that a layer or limiter limits nothing, because operators have switched its policies off.
pub(crate) fn all_policies_off(limiter: &str) {
    tell!(
        warn,
        limiter,
        "control document switches all policies off; requests are not limited",
    );
}

/// Logs that listed addresses do not matter in a layer.
pub(crate) fn listed_addresses_unread(limiter: &str) {
    tell!(
        warn,
        limiter,
        "control document lists addresses that this layer does not read; they do not matter here",
    );
}

/// Logs policies that may be those of other processes, once for each version.
pub(crate) fn control_unknown_policies(version: u64, policies: &[String]) {
    tell!(
        info,
        version,
        ?policies,
        "control document names policies that this process does not have"
    );
}

pub(crate) fn control_unread(error: &StoreError, version: u64) {
    tell!(
        warn,
        kind = error.kind_name(),
        "control document cannot be read ({error}); keeping version {version}"
    );
}

pub(crate) fn control_read_again(version: u64) {
    tell!(info, version, "control document can be read again");
}

/// Logs a stored document that does not apply, once for each content.
pub(crate) fn control_rejected(why: &str, version: u64) {
    tell!(
        warn,
        "control document not applied ({why}); keeping version {version}"
    );
}

/// Logs that this process stored changes again that Redis had lost.
pub(crate) fn control_restored(lacking: usize, version: u64) {
    tell!(
        warn,
        lacking,
        "control document lacked {lacking} known changes; stored them again as version {version}"
    );
}

/// Logs that lost changes cannot be stored again, once for each reason.
pub(crate) fn control_not_stored(why: &str, lacking: usize) {
    tell!(
        warn,
        lacking,
        "control document lacks {lacking} known changes, which cannot be stored again ({why}); they apply in this process"
    );
}

/// Logs that a process that was cut off forgets changes that no other process knows.
pub(crate) fn control_dropped(lacking: usize) {
    tell!(
        warn,
        lacking,
        "control document was out of reach for a day and lacks {lacking} known changes; dropping them, as they may have been removed"
    );
}
