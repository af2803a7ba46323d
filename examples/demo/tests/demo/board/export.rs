//! What the demo exports, driven on each store.

use std::collections::BTreeSet;

use crate::support::prelude::*;
use crate::{
    config::FILE,
    process::{Answer, Demo, new_caller},
};

/// The routes with a layer.
pub(crate) const ROUTES: [&str; 12] = [
    "token-bucket",
    "fixed-window",
    "stacked",
    "weighted",
    "leaky-bucket",
    "paced",
    "sliding-window",
    "sliding-log",
    "concurrency",
    "login",
    "tokens",
    "penalty",
];

/// The series of an export: the values of each label of each metric.
#[derive(Debug, Default)]
pub(super) struct Export(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Export {
    /// Adds the samples of a text, none of which has an escape.
    fn read(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.split_once('{').expect("labels");
            let (labels, _) = rest.split_once("} ").expect("a value");
            let labels_of_metric = self.0.entry(name.to_owned()).or_default();
            for label in labels.split(',') {
                let (label, value) = label.split_once('=').expect("a label");
                let values = labels_of_metric.entry(label.to_owned()).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
    }

    /// Returns the export of a demo on each store, and of one with a file, after each route was asked.
    pub(super) fn of_each_store() -> Self {
        let mut export = Self::default();
        let redis = RedisServer::start();
        for options in [
            vec![],
            vec!["--redis", &redis.url()],
            vec!["--config", FILE],
        ] {
            let demo = Demo::start(&options);
            drive(&demo);
            export.read(&demo.get("/metrics", "prometheus").body);
        }
        export
    }

    /// Returns the names of all metrics.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the values of each label of a metric, or `None` if there is no such metric.
    pub(super) fn labels_of(&self, metric: &str) -> Option<&BTreeMap<String, BTreeSet<String>>> {
        self.0.get(metric)
    }
}

/// Asks each route once, and one until it denies.
pub(super) fn drive(demo: &Demo) {
    let caller = new_caller();
    for route in ROUTES {
        let path = format!("/api/{route}");
        let answer: Answer = match route {
            "weighted" => demo.post(&path, &caller),
            "login" => demo.post(&format!("{path}?password=sesame"), &caller),
            "tokens" => demo.post(&format!("{path}?tokens=1"), &caller),
            "concurrency" => demo.get(&format!("{path}?seconds=0"), &caller),
            _ => demo.get(&path, &caller),
        };
        assert_eq!(answer.status, 200, "{route}");
    }
    eventually("a denial", || {
        demo.get("/api/fixed-window", &caller).status == 429
    });
}
