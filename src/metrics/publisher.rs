//! [`Publisher`]: passes the numbers on to the facade `metrics`.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use ::metrics::{Key, KeyName, Level, Metadata, Recorder, with_recorder};
use tokio::time::sleep;

use super::{
    families::{Family, Kind, Sample, all},
    snapshot::Snapshot,
};

/// Publishes snapshots through the facade [`metrics`](https://docs.rs/metrics/0.24), for the
/// recorder that the application has installed.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, TokenBucket, metrics::Publisher};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().name("mail").policy(TokenBucket::per_second(10)).build()?;
/// let seen = limiter.clone();
/// let publisher = Publisher::new(move || [seen.metrics()]);
/// let task = tokio::spawn(publisher.clone().run(Duration::from_secs(5)));
/// // .. and when the application ends, what has been counted since:
/// task.abort();
/// publisher.publish();
/// # Ok(()) }
/// ```
///
/// **A recorder may be installed at any time**, and several may take turns: each publication passes
/// on all that was counted from the start. Requests cost nothing more than without a publisher.
///
/// **Counters and gauges** have the names and labels that [Prometheus' text](super#names) has. A
/// counter is set to its total ([`absolute`](::metrics::Counter::absolute)). A recorder takes that as
/// a maximum, so a counter never goes down. A recorder that resets its counters when it sends them,
/// such as `DebuggingRecorder`, counts the total again each time: do not use one. Counters that
/// have counted nothing are set to 0, so that their series exist.
///
/// **Histograms are published as counters**, because the facade's histograms take single values,
/// and those are not kept. What the facade would get instead (each value as a bound of its range)
/// would falsify the sum and every quantile. So a histogram is a counter
/// `tower_throttle_wait_seconds_bucket` for each value of the label `le`, the counter
/// `tower_throttle_wait_seconds_count`, and the gauge `tower_throttle_wait_seconds_sum`, which is
/// set to the sum so far. In Prometheus these are the series of a histogram: `rate` and
/// `histogram_quantile` give the same results as with the text. An exporter that renames counters
/// also renames these. (`with_recommended_naming` of metrics-exporter-prometheus does.)
///
/// **Layers and limiters may come and go**: the function may return others each time. A gauge of one
/// that is gone keeps its last value. If several have one name and one of them goes, the counters of
/// the name do not increase until the others have counted as much. So give each a different name.
///
/// Clones publish the same.
#[derive(Clone)]
pub struct Publisher(Arc<dyn Fn() -> Vec<Snapshot> + Send + Sync>);

impl Publisher {
    /// Creates a publisher of these snapshots, which are taken each time.
    pub fn new<S>(snapshots: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: IntoIterator<Item = Snapshot>,
    {
        Self(Arc::new(move || snapshots().into_iter().collect()))
    }

    /// Publishes what was counted until now.
    pub fn publish(&self) {
        let families = all(&(self.0)());
        with_recorder(|recorder| {
            for family in families {
                describe(recorder, &family);
                for sample in &family.samples {
                    pass_on(recorder, &family.name, family.kind, sample);
                }
            }
        });
    }

    /// Publishes now, and whenever the interval has passed, until the future is dropped or its
    /// task is aborted. Needs a Tokio runtime with timers.
    pub async fn run(self, interval: Duration) -> Infallible {
        loop {
            self.publish();
            sleep(interval).await;
        }
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

static METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

fn describe(recorder: &dyn Recorder, family: &Family) {
    let name = |suffix| KeyName::from(format!("{}{suffix}", family.name));
    let counter = |suffix| recorder.describe_counter(name(suffix), None, family.help.into());
    let gauge = |suffix| recorder.describe_gauge(name(suffix), None, family.help.into());
    match family.kind {
        Kind::Counter => counter("_total"),
        Kind::Gauge => gauge(""),
        Kind::Histogram => {
            counter("_bucket");
            counter("_count");
            gauge("_sum");
        }
    }
}

fn pass_on(recorder: &dyn Recorder, name: &str, kind: Kind, sample: &Sample) {
    let labels: Vec<_> = sample.labels.iter().map(Into::into).collect();
    let key = Key::from_parts(format!("{name}{}", sample.suffix), labels);
    if kind == Kind::Gauge || sample.suffix == "_sum" {
        let gauge = recorder.register_gauge(&key, &METADATA);
        gauge.set(sample.value);
    } else {
        let counter = recorder.register_counter(&key, &METADATA);
        counter.absolute(sample.value as u64);
    }
}
