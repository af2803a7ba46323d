//! Under `tower_throttle::config`: files of limits.

use std::fmt;

/// Logs that another version of a configuration is in force.
pub(crate) fn config_applied(version: u64, changes: &str) {
    tell!(
        info,
        "config",
        version,
        "configuration version {version} applied ({changes})"
    );
}

/// Logs which policies another version does not have.
pub(crate) fn config_lost_policies(version: u64, policies: &str) {
    tell!(
        warn,
        "config",
        version,
        "configuration version {version} lacks policies that were in force ({policies}): nothing limits what they limited"
    );
}

/// Logs that the files are again those of the version in force.
pub(crate) fn config_restored(version: u64) {
    tell!(
        info,
        "config",
        version,
        "configuration file is that of version {version} again"
    );
}

/// Logs a configuration that cannot be applied, with all mistakes in one line.
pub(crate) fn config_rejected(version: u64, errors: &impl fmt::Display) {
    let errors = errors.to_string().replace('\n', "; ");
    tell!(
        warn,
        "config",
        version,
        "configuration rejected ({errors}); version {version} stays in force, and the process cannot start again with this file"
    );
}

/// Logs that a file of lists keeps others from being taken, once until it settles.
pub(crate) fn config_restless() {
    tell!(
        warn,
        "config",
        "the file of lists changes each time it is read; taking the configuration with the lists as they are"
    );
}
