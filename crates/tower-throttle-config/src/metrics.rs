//! The numbers of a file: which version of it is in force.

use std::{fmt::Write, time::UNIX_EPOCH};

use crate::live::Live;

impl Live {
    #[rustfmt::skip]
    fn gauges(&self) -> [(&'static str, &'static str, f64); 3] {
        let applied_at = self.applied_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        [
            ("tower_throttle_config_version", "The number of the version that is in force. 1 is that of the start.", self.version as f64),
            ("tower_throttle_config_rejected", "Whether the configuration file has been rejected.", f64::from(u8::from(self.rejected.is_some()))),
            ("tower_throttle_config_applied_timestamp_seconds", "When the version that is in force was applied.", applied_at.as_secs_f64()),
        ]
    }

    /// Adds the numbers to a text for Prometheus or OpenMetrics.
    pub(crate) fn add_numbers_to(&self, text: &mut String) {
        const END: &str = "# EOF\n";

        let is_open_metrics = text.ends_with(END);
        if is_open_metrics {
            text.truncate(text.len() - END.len());
        }
        let escaped = self.file.replace('\\', r"\\").replace('"', "\\\"");
        let escaped = escaped.replace('\n', r"\n");
        for (name, help, value) in self.gauges() {
            // Writing to a text cannot fail.
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{file=\"{escaped}\"}} {value}\n"
            );
        }
        if is_open_metrics {
            text.push_str(END);
        }
    }

    /// Publishes the numbers through the facade `metrics`.
    #[cfg(feature = "metrics-facade")]
    pub(crate) fn publish(&self) {
        for (name, help, value) in self.gauges() {
            ::metrics::describe_gauge!(name, help);
            ::metrics::gauge!(name, "file" => self.file.clone()).set(value);
        }
    }
}
