//! The publisher, with a recorder that keeps what it gets.

use ::metrics::{set_global_recorder, with_local_recorder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::{task::yield_now, time::timeout};
use tower_throttle::metrics::{self, Publisher};

use crate::support::prelude::*;

fn limiter(name: &str, tokens: u64) -> Limiter {
    let builder = Limiter::builder().name(name);
    let builder = builder.policy(TokenBucket::without_refill(tokens));
    builder.build().expect("a limiter")
}

fn check(limiter: &Limiter, times: usize) {
    for _ in 0..times {
        let _ = limiter.check_now("ann").expect("a decision");
    }
}

/// What a recorder has got: the series as Prometheus' text names them.
#[derive(Default)]
struct Got {
    counters: HashMap<String, u64>,
    gauges: HashMap<String, f64>,
}

impl Got {
    /// Takes what was published since the last time: the recorder forgets it then.
    fn more(&mut self, snapshotter: &Snapshotter) {
        for (key, _, help, value) in snapshotter.snapshot().into_vec() {
            let key = key.key();
            assert!(help.is_some_and(|help| !help.is_empty()), "{key}");
            let labels = key.labels();
            let labels = labels.map(|label| format!("{}=\"{}\"", label.key(), label.value()));
            let labels: Vec<_> = labels.collect();
            let series = format!("{}{{{}}}", key.name(), labels.join(","));
            match value {
                DebugValue::Counter(total) => drop(self.counters.insert(series, total)),
                DebugValue::Gauge(now) => drop(self.gauges.insert(series, now.into_inner())),
                DebugValue::Histogram(values) => panic!("{series}: {values:?}"),
            }
        }
    }

    /// Asserts that it is what the text says, series for series.
    #[track_caller]
    fn assert_is(&self, text: &str) {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let mut samples: Vec<_> = samples.map(str::to_owned).collect();
        let counters = self.counters.iter();
        let counters = counters.map(|(series, count)| format!("{series} {count}"));
        let gauges = self.gauges.iter();
        let gauges = gauges.map(|(series, number)| format!("{series} {number}"));
        let mut got: Vec<_> = counters.chain(gauges).collect();
        samples.sort();
        got.sort();
        assert_eq!(got, samples);
    }
}

#[test]
fn the_publisher_of_limits_has_the_numbers_of_their_file() {
    use tower_throttle_config::Config;

    let file = |limit: u64| {
        let text = format!("version = 1\n[[policy]]\nname = \"a\"\nquota = \"{limit} per day\"\n");
        Config::from_toml(&text).expect("a file")
    };
    let limits = file(1).build().expect("limits");
    let publisher = limits.publisher();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let mut got = Got::default();
    for version in [1.0, 2.0] {
        with_local_recorder(&recorder, || publisher.publish());
        got.more(&snapshotter);
        got.assert_is(&limits.to_prometheus());
        let in_force = r#"tower_throttle_config_version{file="none"}"#;
        assert_eq!(got.gauges[in_force], version);
        limits.replace(file(2)).expect("another version");
    }
}

/// The only test of this binary that installs a recorder for the process.
#[tokio::test]
async fn a_recorder_that_is_installed_late_gets_all() {
    let (api, mail) = (limiter("api", 3), limiter("mail", 9));
    let seen = (api.clone(), mail.clone());
    let publisher = Publisher::new(move || [seen.0.metrics(), seen.1.metrics()]);
    check(&api, 5);
    check(&mail, 2);
    // There is no recorder: what is published now must not be lost.
    publisher.publish();
    check(&api, 1);

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    set_global_recorder(recorder).expect("the first recorder");
    let text = || metrics::to_prometheus([&api.metrics(), &mail.metrics()]);
    let mut got = Got::default();
    for times in [0, 4, 0, 1] {
        check(&mail, times);
        publisher.publish();
        got.more(&snapshotter);
        got.assert_is(&text());
    }
    let denied = r#"tower_throttle_requests_total{limiter="api",result="denied"}"#;
    assert_eq!(got.counters[denied], 3);

    // A task publishes at once, and then in its interval.
    check(&api, 2);
    let task = tokio::spawn(publisher.clone().run(Duration::from_millis(1)));
    let mut published = async |times| {
        let published = async {
            while got.counters[denied] != times {
                yield_now().await;
                got.more(&snapshotter);
            }
        };
        timeout(DEADLINE, published).await.expect("a publication");
    };
    published(5).await;
    check(&api, 2);
    published(7).await;
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    publisher.publish();
    got.more(&snapshotter);
    got.assert_is(&text());
}

/// Waits are a histogram, which has a sum and ranges. Recorders of threads take turns: each gets
/// all.
#[tokio::test(start_paused = true)]
async fn each_recorder_gets_all_and_histograms_are_exact() {
    let limiter = Limiter::new(paused_store(), TokenBucket::per_second(2).burst(1));
    let seen = limiter.clone();
    let publisher = Publisher::new(move || [seen.metrics()]);
    let mut recorders: Vec<_> = (0..8)
        .map(|_| {
            let recorder = DebuggingRecorder::new();
            (recorder.snapshotter(), recorder, Got::default())
        })
        .collect();
    for waits in 0..3 {
        assert!(acquire(&limiter, "ann", DEADLINE).await.is_allowed());
        for (snapshotter, recorder, got) in &mut recorders {
            with_local_recorder(&*recorder, || publisher.publish());
            got.more(snapshotter);
            got.assert_is(&limiter.metrics().to_prometheus());
            if waits > 0 {
                let count = r#"tower_throttle_wait_seconds_count{limiter="default"}"#;
                assert_eq!(got.counters[count], waits);
                let up_to = r#"tower_throttle_wait_seconds_bucket{limiter="default",le="+Inf"}"#;
                assert_eq!(got.counters[up_to], waits);
            }
        }
    }
}
