//! Snapshots in the text formats of Prometheus and OpenMetrics.

use std::fmt::Write;

use super::{
    families::{Family, Kind, all},
    snapshot::Snapshot,
};

/// The `Content-Type` of [`to_prometheus`].
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The `Content-Type` of [`to_openmetrics`].
pub const OPENMETRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the snapshots of several layers and limiters as one text, in the format of
/// Prometheus, version 0.0.4. [`PROMETHEUS_CONTENT_TYPE`] is its type.
///
/// Each layer or limiter is counted once, even if several clones are listed. Those of one name are
/// added up. So give each a different [name](crate::RateLimitLayerBuilder::name), to tell them
/// apart. Give one also to those that come and go: if one of several with the same name is not
/// listed any more, their counters go down, and Prometheus takes that for a restart.
///
/// ```
/// use tower_throttle::{Limiter, TokenBucket, metrics};
///
/// let limiter = |name| Limiter::builder().name(name).policy(TokenBucket::per_minute(1)).build();
/// let (logins, mails) = (limiter("logins")?, limiter("mails")?);
/// assert!(logins.check_now("ann")?.is_allowed());
///
/// let text = metrics::to_prometheus([&logins.metrics(), &mails.metrics()]);
/// let line = r#"tower_throttle_requests_total{limiter="logins",result="allowed"} 1"#;
/// assert!(text.lines().any(|found| found == line));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn to_prometheus<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> String {
    text(&all(snapshots), "_total")
}

/// Does the same as [`to_prometheus`] in the format of OpenMetrics 1.0.
/// [`OPENMETRICS_CONTENT_TYPE`] is its type.
#[must_use]
pub fn to_openmetrics<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> String {
    text(&all(snapshots), "") + "# EOF\n"
}

impl Snapshot {
    /// Writes the snapshot as [`to_prometheus`] does.
    pub fn to_prometheus(&self) -> String {
        to_prometheus([self])
    }

    /// Writes the snapshot as [`to_openmetrics`] does.
    pub fn to_openmetrics(&self) -> String {
        to_openmetrics([self])
    }
}

/// Writes all families. `counter_suffix`: what the family of a counter has behind its name. Its
/// samples end in `_total`, and only OpenMetrics takes that off the family.
fn text(families: &[Family], counter_suffix: &str) -> String {
    let mut text = String::new();
    for family in families {
        let name = &family.name;
        let (kind, suffix) = match family.kind {
            Kind::Counter => ("counter", counter_suffix),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        // Writing to a string never fails.
        let _ = writeln!(text, "# HELP {name}{suffix} {}", escaped(family.help));
        let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        for sample in &family.samples {
            let labels = sample.labels.iter();
            let labels = labels.map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
            let labels = labels.collect::<Vec<_>>().join(",");
            let _ = writeln!(text, "{name}{}{{{labels}}} {}", sample.suffix, sample.value);
        }
    }
    text
}

/// Escapes a text as both formats ask for in label values. OpenMetrics asks for the same in
/// `HELP`; this crate's own have nothing to escape.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
