//! [`Publisher`]: passes the numbers on to the facade `metrics`.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt, ptr,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, with_recorder};
use tokio::time::sleep;

#[cfg(feature = "config")]
use super::config::{self, ConfigNumbers};
use super::{
    families::{Family, Kind, Sink, Value, write_sums},
    seen::Seen,
    snapshot::Snapshot,
};
use crate::util::lock::lock;

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
/// **A recorder may be installed at any time.** Each time, the publisher looks for the recorder
/// and passes on what was counted since it last published to that one. A new recorder gets
/// all that was counted from the start. Requests cost nothing more than without a publisher.
///
/// **A recorder must live as long as the publisher**, as one does that is installed for the
/// process. The publisher knows a recorder by its address, because the facade tells nothing else.
/// So a recorder at the address of one that was dropped gets only what was counted since: a test
/// that makes one after another needs a publisher for each. Several recorders may take turns, such
/// as those of [`with_local_recorder`](::metrics::with_local_recorder). The publisher remembers the
/// last 16. One that returns after 16 others gets all again.
///
/// **Counters and gauges** have the names and labels that [Prometheus' text](super#names) has. A
/// counter is incremented by the difference, and never [set](::metrics::Counter::absolute).
/// Counters of which nothing was counted are incremented by 0, so that their series exist.
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
/// **Layers and limiters may come and go**, also under one name: the function may return others
/// each time. What was counted by those that are gone stays in the sums of their names, and their
/// gauges are set to 0. They may return, unless 1,000 that were built later are gone, too. Each of
/// these takes a few kilobytes.
///
/// **Limits of a file** make a publisher that has the numbers of the configuration, too:
/// `config::Limits::publisher`.
///
/// One publisher should publish a snapshot. Two of them would count everything twice. Clones are
/// one publisher.
#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    snapshots: Box<dyn Fn() -> Vec<Snapshot> + Send + Sync>,
    #[cfg(feature = "config")]
    config: Option<Box<dyn Fn() -> ConfigNumbers + Send + Sync>>,
    published: Mutex<Published>,
}

/// What recorders have got.
#[derive(Default)]
struct Published {
    seen: Seen,
    passes: u64,
    /// By their addresses. Before one is installed, that is the address of the facade's own, which
    /// does nothing.
    recorders: HashMap<usize, Got>,
}

/// What one recorder has got.
#[derive(Default)]
struct Got {
    /// The number of the last pass to it.
    pass: u64,
    counts: HashMap<Key, u64>,
}

/// How many recorders a publisher remembers.
const RECORDERS: usize = 16;

impl Publisher {
    /// Creates a publisher of these snapshots, which are taken each time.
    pub fn new<S>(snapshots: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: IntoIterator<Item = Snapshot>,
    {
        Self(Arc::new(Inner {
            snapshots: Box::new(move || snapshots().into_iter().collect()),
            #[cfg(feature = "config")]
            config: None,
            published: Mutex::default(),
        }))
    }

    /// Creates a publisher of the numbers of a configuration, too.
    #[cfg(feature = "config")]
    pub(crate) fn with_config(
        snapshots: impl Fn() -> Vec<Snapshot> + Send + Sync + 'static,
        config: impl Fn() -> ConfigNumbers + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            snapshots: Box::new(snapshots),
            config: Some(Box::new(config)),
            published: Mutex::default(),
        }))
    }

    /// Publishes what was counted since the last time.
    ///
    /// It waits while another thread publishes, so that all is published when it returns.
    /// **The danger**: neither the function that takes the snapshots nor the recorder may call it,
    /// as it would wait for itself.
    pub fn publish(&self) {
        // Taken under the lock, so that no older snapshot follows.
        let mut published = lock(&self.0.published);
        let snapshots = (self.0.snapshots)();
        let (limiters, stores) = published.seen.update(&snapshots);
        #[cfg(feature = "config")]
        let config = self.0.config.as_ref().map(|numbers| numbers());
        with_recorder(|recorder| {
            let address = ptr::from_ref(recorder).cast::<()>().addr();
            let got = published.begin(address);
            let mut pass = Pass {
                recorder,
                is_new: got.counts.is_empty(),
                counts: &mut got.counts,
                family: Family::default(),
            };
            write_sums(&mut pass, &limiters, &stores);
            #[cfg(feature = "config")]
            if let Some(config) = &config {
                config::write(&mut pass, config);
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

impl Published {
    /// Begins a pass to a recorder. Forgets the one whose last pass is the oldest, if there are
    /// too many.
    fn begin(&mut self, address: usize) -> &mut Got {
        let is_known = self.recorders.contains_key(&address);
        if !is_known && self.recorders.len() >= RECORDERS {
            let recorders = self.recorders.iter();
            let oldest = recorders.min_by_key(|(_, got)| got.pass);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.recorders.remove(&oldest);
            }
        }
        self.passes += 1;
        let got = self.recorders.entry(address).or_default();
        got.pass = self.passes;
        got
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
    /// The recorder has got nothing yet.
    is_new: bool,
    counts: &'a mut HashMap<Key, u64>,
    family: Family,
}

impl Sink for Pass<'_> {
    fn family(&mut self, family: Family) {
        self.family = family;
        if !self.is_new {
            return;
        }
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
                let published = self.counts.entry(key).or_default();
                counter.increment(count.saturating_sub(*published));
                *published = count.max(*published);
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
