//! Numbers of a configuration that is in a file.

use std::{sync::Arc, time::Duration};

use super::families::{Family, Kind, Sink, Value};

/// Which version of a configuration is in force.
#[derive(Clone, Debug)]
pub(crate) struct ConfigNumbers {
    /// The name of the file, which is the label `file`.
    pub(crate) file: Arc<str>,
    pub(crate) version: u64,
    /// Whether the files are not what is in force.
    pub(crate) is_rejected: bool,
    /// The time since the UNIX epoch.
    pub(crate) applied_at: Duration,
}

/// Writes the numbers of a configuration.
pub(super) fn write(sink: &mut impl Sink, config: &ConfigNumbers) {
    let mut gauge = |name, value, help| {
        let kind = Kind::Gauge;
        sink.family(Family { name, kind, help });
        sink.sample("", &[("file", &config.file)], value);
    };
    gauge(
        "tower_throttle_config_version",
        Value::Count(config.version),
        "The number of the version that is in force. 1 is that of the start.",
    );
    gauge(
        "tower_throttle_config_rejected",
        Value::Count(config.is_rejected.into()),
        "Whether the configuration file has been rejected.",
    );
    gauge(
        "tower_throttle_config_applied_timestamp_seconds",
        Value::Number(config.applied_at.as_secs_f64()),
        "When the version that is in force was applied.",
    );
}
