//! What users of other rate limiters have there, as files: the same answers as from code, byte for
//! byte, in a layer and in a limiter.

use std::{fmt::Write, time::Duration};

use super::world::{World, size};
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Limiter, Policy, RateLimitLayer, RateLimitLayerBuilder,
    SlidingLog, SlidingWindow, TokenBucket, key,
};

/// One way of limiting: a policy as text and in code, what a limiter is asked, which of its checks are
/// admitted, and requests to a layer.
struct Row {
    system: &'static str,
    /// The fields of the policy but its name.
    file: &'static str,
    /// The fields of the layer.
    of_layer: &'static str,
    code: fn(Policy) -> Policy,
    layer: fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
    quota: fn() -> Policy,
    operations: &'static str,
    /// A digit for each check.
    admitted: &'static str,
    requests: &'static str,
}

const PLAIN: Row = Row {
    system: "",
    file: "",
    of_layer: "",
    code: |policy| policy,
    layer: |builder| builder,
    quota: || Policy::new("row", TokenBucket::per_second(1)),
    operations: "",
    admitted: "",
    requests: "20 GET /; GET / 192.0.2.9; wait 1; 2 GET /; wait 2; GET /",
};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn named(
    quota: impl TryInto<tower_throttle::Quota, Error = tower_throttle::ConfigError>,
) -> Policy {
    Policy::new("row", quota)
}

const ROWS: &[Row] = &[
    Row {
        system: "Swoft: rate 1, max 10, default 5",
        file: r#"quota = "1 per second, burst 10, initial 5""#,
        quota: || named(TokenBucket::per_second(1).burst(10).initial(5)),
        operations: "check*8; wait 1; check*3; wait 4; check*8; wait 30; check*20",
        admitted: "11111000 100 11110000 11111111110000000000",
        ..PLAIN
    },
    Row {
        system: "Swoft: a fallback over the limit",
        file: r#"quota = "1 per second, burst 10, initial 2"
            key = "header:x-api-key""#,
        of_layer: r#"on_denied = "page""#,
        code: |policy| policy.key(key::header("x-api-key")),
        layer: |builder| builder.on_denied(super::world::page),
        quota: || named(TokenBucket::per_second(1).burst(10).initial(2)),
        operations: "check*3",
        admitted: "110",
        requests: "GET / x-api-key=a; GET / x-api-key=a; GET / x-api-key=a; GET / x-api-key=b; GET /",
    },
    Row {
        system: "ShenYu, Spring Cloud Gateway: a fractional rate, capacity 6, 2 requested",
        file: r#"quota = "1 per 2 seconds, burst 6"
            cost = 2"#,
        code: |policy| policy.cost(2),
        quota: || named(TokenBucket::new(1, seconds(2)).burst(6)),
        operations: "check*4; wait 2; check; wait 2; check",
        admitted: "1110 0 1",
        ..PLAIN
    },
    Row {
        system: "ShenYu: leaky bucket",
        file: r#"quota = "leaky bucket of 1 per 2 seconds, capacity 6""#,
        quota: || named(LeakyBucket::new(1, seconds(2)).capacity(6)),
        operations: "check*10; wait 4; check*10",
        admitted: "1111110000 1100000000",
        ..PLAIN
    },
    Row {
        system: "ShenYu: sliding window",
        file: r#"quota = "sliding window of 6 per 12 seconds""#,
        quota: || named(SlidingWindow::new(6, seconds(12))),
        operations: "check*10; wait 4; check*10; wait 12; check*10",
        admitted: "1111110000 0000000000 1100000000",
        ..PLAIN
    },
    Row {
        system: "ShenYu: concurrency",
        file: r#"quota = "6 at once""#,
        quota: || named(Concurrency::new(6)),
        operations: "hold*10",
        admitted: "1111110000",
        ..PLAIN
    },
    Row {
        system: "gateways: the key is the whole rule",
        file: r#"quota = "2 per hour"
            shared = true"#,
        code: Policy::shared,
        quota: || named(TokenBucket::per_hour(2)),
        operations: "check*3",
        admitted: "110",
        ..PLAIN
    },
    Row {
        system: "gateways: the key is the address",
        file: r#"quota = "2 per hour"
            key = "peer""#,
        code: |policy| policy.key(key::peer()),
        quota: || named(TokenBucket::per_hour(2)),
        operations: "check*3",
        admitted: "110",
        ..PLAIN
    },
    Row {
        system: "a sorted set: 5 in 60 s",
        file: r#"quota = "sliding log of 5 per 60 seconds""#,
        quota: || named(SlidingLog::new(5, seconds(60))),
        operations: "check*20; wait 60; take 3; take 3; take 2",
        admitted: "11111000000000000000 101",
        ..PLAIN
    },
    Row {
        system: "a funnel: capacity 15, leaks 0.5 a second",
        file: r#"quota = "leaky bucket of 1 per 2 seconds, capacity 15""#,
        quota: || named(LeakyBucket::new(1, seconds(2)).capacity(15)),
        operations: "check*20; wait 1; check; wait 1; check*2",
        admitted: "11111111111111100000 0 10",
        ..PLAIN
    },
    Row {
        system: "a funnel that holds requests until their turn",
        file: r#"quota = "leaky bucket of 1 per 2 seconds, queue 14""#,
        quota: || named(LeakyBucket::new(1, seconds(2)).queue(14)),
        operations: "check*20; wait 2; check",
        admitted: "11111111111111100000 1",
        ..PLAIN
    },
    Row {
        system: "redis-cell: CL.THROTTLE key 14 30 60 1",
        file: r#"quota = "30 per 60 seconds, burst 15""#,
        quota: || named(TokenBucket::new(30, seconds(60)).burst(14 + 1)),
        operations: "check*16; wait 2; check; wait 10; take 3; take 3; take 16",
        admitted: "1111111111111110 1 100",
        ..PLAIN
    },
    Row {
        system: "a list of 5 tokens, filled by hand",
        file: r#"quota = "5 without refill""#,
        quota: || named(TokenBucket::without_refill(5)),
        operations: "check*8; credit 10; check*6; wait 99999; check; reset; check*6",
        admitted: "11111000 111110 0 111110",
        ..PLAIN
    },
    Row {
        system: "wait for a token, or give up",
        file: r#"quota = "1 per 2 seconds, burst 3""#,
        of_layer: r#"wait_up_to = "5s""#,
        layer: |builder| builder.wait_up_to(seconds(5)),
        quota: || named(TokenBucket::new(1, seconds(2)).burst(3)),
        operations: "acquire*8",
        admitted: "11111000",
        requests: "GET /; GET /; GET /; GET /; GET /; GET /",
        ..PLAIN
    },
    Row {
        system: "N per interval, all back when the key expires",
        file: r#"quota = "fixed window of 3 per 10 seconds""#,
        quota: || named(FixedWindow::new(3, seconds(10))),
        operations: "wait 7; check*4; wait 9; check; wait 1; check*4",
        admitted: "1110 0 1110",
        ..PLAIN
    },
    Row {
        system: "N per interval of the clock",
        file: r#"quota = "fixed window of 3 per 10 seconds, aligned""#,
        quota: || named(FixedWindow::new(3, seconds(10)).aligned()),
        operations: "wait 7; check*4; wait 3; check*4",
        admitted: "1110 1110",
        ..PLAIN
    },
    Row {
        system: "a packet of n bytes takes n tokens",
        file: r#"quota = "1000 per second, burst 1500"
            cost = { by = "size" }"#,
        of_layer: "",
        code: |policy| policy.cost_by(size),
        quota: || named(TokenBucket::per_second(1_000).burst(1_500)),
        requests: "GET / x-size=1400; GET / x-size=200; GET / x-size=100; wait 1; GET / x-size=1500; GET / x-size=1501",
        ..PLAIN
    },
];

impl Row {
    fn file(&self) -> String {
        let Self { file, of_layer, .. } = self;
        format!("[[policy]]\nname = \"row\"\n{file}\n[layer.web]\n{of_layer}\n")
    }
}

#[test]
fn each_system_as_a_file_answers_as_from_code() {
    for row in ROWS {
        let world = World::new();
        let of_file = world.talk(&world.layer_of_file(&row.file()), row.requests);
        let world = World::new();
        let policy = (row.code)((row.quota)());
        let builder = RateLimitLayer::builder().name("web").policy(policy);
        let of_code = world.layer_of_code((row.layer)(builder));
        let of_code = world.talk(&of_code, row.requests);
        assert_eq!(of_file, of_code, "{}", row.system);
        // Of requests in turn, each returns its permit before the next.
        let denies = row.operations != "hold*10";
        let is_denied = ["429 ", "403 ", "\"no\""]
            .iter()
            .any(|sign| of_file.contains(sign));
        assert_eq!(is_denied, denies, "{}: {of_file}", row.system);
    }
}

#[test]
fn a_limiter_of_a_file_decides_as_from_code() {
    for row in ROWS.iter().filter(|row| !row.operations.is_empty()) {
        let file = row.file().replace("[layer.web]", "[limiter.jobs]");
        let file = file.replace(row.of_layer, "");
        let world = World::new();
        let of_file = operate(&world, &world.limiter_of_file(&file), row.operations);
        let world = World::new();
        // What reads requests is not for limiters.
        let policy = match row.file.contains("key = ") {
            true => (row.quota)(),
            false => (row.code)((row.quota)()),
        };
        let of_code = Limiter::builder().name("jobs").policy(policy);
        let of_code = operate(&world, &world.limiter_of_code(of_code), row.operations);
        assert_eq!(of_file, of_code, "{}", row.system);
        let admitted = row.admitted.replace(' ', "");
        assert_eq!(of_file.admitted, admitted, "{}", row.system);
    }
}

/// What became of operations.
#[derive(Debug, PartialEq, Eq)]
struct Operated {
    admitted: String,
    /// All that was returned.
    log: String,
}

/// Runs operations on the bucket of one caller. `check*3` is done three times.
fn operate(world: &World, limiter: &Limiter, operations: &str) -> Operated {
    let (mut admitted, mut log) = (String::new(), String::new());
    world.block_on(async {
        let mut held = Vec::new();
        for operation in operations.split(';') {
            let (operation, times) = operation.split_once('*').unwrap_or((operation, "1"));
            let words: Vec<_> = operation.split_whitespace().collect();
            let number = words
                .get(1)
                .and_then(|number| number.parse().ok())
                .unwrap_or(0);
            for _ in 0..times.parse().expect("a number") {
                let is_admitted = match words[0] {
                    "wait" => {
                        world.advance(seconds(number));
                        continue;
                    }
                    "credit" => {
                        let refund = limiter.credit("ann", number).await.expect("a refund");
                        writeln!(log, "{refund:?}").expect("a text");
                        continue;
                    }
                    "reset" => {
                        limiter.reset("ann").await.expect("a reset");
                        continue;
                    }
                    "acquire" | "hold" => {
                        let most = if words[0] == "hold" { 0 } else { 5 };
                        let permit = limiter
                            .acquire("ann", seconds(most))
                            .await
                            .expect("a permit");
                        writeln!(log, "{:?}", permit.decision()).expect("a text");
                        let is_allowed = permit.is_allowed();
                        held.push(permit);
                        is_allowed
                    }
                    _ => {
                        let decision = match words[0] {
                            "take" => limiter.check_n("ann", number).await,
                            _ => limiter.check("ann").await,
                        };
                        let decision = decision.expect("a decision");
                        writeln!(log, "{decision:?}").expect("a text");
                        writeln!(log, "{:?}", tower_throttle::compat::cl_throttle(&decision))
                            .expect("a text");
                        decision.is_allowed()
                    }
                };
                admitted.push(if is_admitted { '1' } else { '0' });
            }
        }
    });
    Operated { admitted, log }
}
