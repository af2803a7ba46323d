//! Prometheus runs the rules and the queries of the board.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    export::{ROUTES, drive},
    files::{
        Query, alerts, all, board, path, queries_of_board, text, variables, variables_in, word,
    },
    prometheus::{Prometheus, promtool},
};
use crate::{
    config::FILE,
    process::Demo,
    support::{RedisServer, eventually},
};

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    promtool(&["check", "rules"], &path("alerts.yml")).expect("correct rules");
    promtool(&["test", "rules"], &path("alerts_test.yml")).expect("passed tests");
}

/// Prometheus scrapes a demo on each store, and one with a file, accepts the rules, and answers what the board asks.
#[test]
fn prometheus_answers_each_query_of_the_board() {
    let redis = RedisServer::start();
    let demos = [
        Demo::start(&[]),
        Demo::start(&["--redis", &redis.url()]),
        Demo::start(&["--config", FILE]),
    ];
    let prometheus = Prometheus::start(
        &demos.each_ref().map(|demo| demo.address),
        &path("alerts.yml"),
    );
    demos.iter().for_each(drive);

    let board = board();
    let mut asked = queries_of_board(&board);
    let of_variable = |(name, selector, label): (&str, &str, &str)| Query {
        place: format!("${name}"),
        expression: format!("count by ({label}) ({selector})"),
        shown: Vec::new(),
    };
    asked.extend(variables(&board).into_iter().map(of_variable));
    for query in asked {
        let expression = filled(&query.expression);
        // A rate needs two scrapes.
        eventually(&query.place, || {
            let series = prometheus
                .query(&expression)
                .unwrap_or_else(|error| panic!("{}: {error}", query.place));
            !series.is_empty()
        });
    }
    let limiters = prometheus.query("count by (limiter) (tower_throttle_requests_total)");
    assert_eq!(limiters.expect("an answer").len(), ROUTES.len());
    let denied = "sum(tower_throttle_requests_total{result=\"denied\"}) >= 3";
    eventually("the denials of all demos", || {
        !prometheus.query(denied).expect("an answer").is_empty()
    });
    prometheus.query("sum by (").expect_err("no expression");

    let loaded = prometheus.get("/api/v1/rules");
    let loaded: BTreeSet<_> = all(&loaded["data"]["groups"][0], "rules")
        .iter()
        .map(|rule| {
            assert_ne!(rule["health"], "err", "{rule}");
            word(rule, "name")
        })
        .collect();
    let rules = text("alerts.yml");
    assert_eq!(
        loaded,
        alerts(&rules).into_iter().map(|(alert, _)| alert).collect()
    );
}

/// Replaces the variables as Grafana does.
fn filled(expression: &str) -> String {
    let filled = expression.replace("$__rate_interval", "1m");
    let mut variables = variables_in(&filled);
    variables.sort_unstable_by_key(|name| Reverse(name.len()));
    let fill = |filled: String, name: &&str| filled.replace(&format!("${name}"), ".*");
    variables.iter().fold(filled.clone(), fill)
}
