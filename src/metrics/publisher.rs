//! [`Publisher`]: passes the numbers on to the facade `metrics`.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, with_recorder};
use tokio::time::sleep;

use super::{
    families::{Family, Kind, Sink, Value, write_all},
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
/// such as `DebuggingRecorder`, counts the total again each time: do not use one. Counters of which
/// nothing was counted are set to 0, so that their series exist.
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
/// the name do not increase until the others have counted as much. So give each a name of its own.
///
/// Clones publish the same.
#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    snapshots: Box<dyn Fn() -> Vec<Snapshot> + Send + Sync>,
}

impl Publisher {
    /// Creates a publisher of these snapshots, which are taken each time.
    pub fn new<S>(snapshots: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: IntoIterator<Item = Snapshot>,
    {
        Self(Arc::new(Inner {
            snapshots: Box::new(move || snapshots().into_iter().collect()),
        }))
    }

    /// Publishes what was counted until now.
    pub fn publish(&self) {
        let snapshots = (self.0.snapshots)();
        with_recorder(|recorder| {
            let family = Family::default();
            let mut pass = Pass { recorder, family };
            write_all(&mut pass, &snapshots);
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

/// Passes samples to a recorder.
struct Pass<'a> {
    recorder: &'a dyn Recorder,
    family: Family,
}

impl Sink for Pass<'_> {
    fn family(&mut self, family: Family) {
        self.family = family;
        let describe = |suffix, is_counter: bool| {
            let name = KeyName::from(format!("{}{suffix}", family.name));
            match is_counter {
                true => self
                    .recorder
                    .describe_counter(name, None, family.help.into()),
                false => self.recorder.describe_gauge(name, None, family.help.into()),
            }
        };
        match family.kind {
            Kind::Counter => describe("_total", true),
            Kind::Gauge => describe("", false),
            Kind::Histogram => {
                describe("_bucket", true);
                describe("_count", true);
                describe("_sum", false);
            }
        }
    }

    fn sample(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: Value) {
        let labels = labels.iter();
        let labels = labels.map(|(label, value)| Label::new(*label, (*value).to_owned()));
        let name = format!("{}{suffix}", self.family.name);
        let key = Key::from_parts(name, labels.collect::<Vec<_>>());
        match value {
            Value::Count(count) if self.family.kind != Kind::Gauge => {
                let counter = self.recorder.register_counter(&key, &METADATA);
                counter.absolute(count);
            }
            Value::Count(count) => self.set(&key, count as f64),
            Value::Number(number) => self.set(&key, number),
        }
    }
}

impl Pass<'_> {
    fn set(&self, key: &Key, value: f64) {
        self.recorder.register_gauge(key, &METADATA).set(value);
    }
}
