//! A file on Redis: one pool of connections, and the buckets of the same policies in code.

use tower_throttle::LimiterBuilder;
use tower_throttle_config::Config;

use crate::support::prelude::*;

const POLICIES: &str = r#"
    policy = [
        { name = "bucket", quota = "1 per 2 seconds, burst 6" },
        { name = "hand", quota = "5 without refill" },
        { name = "leaky", quota = "leaky bucket of 1 per 2 seconds, capacity 15" },
        { name = "window", quota = "fixed window of 3 per hour", key = "header:x-api-key" },
        { name = "sliding", quota = "sliding window of 9 per hour" },
        { name = "log", quota = "sliding log of 5 per 60 seconds", settle_by = "failures" },
        { name = "everyone", quota = "500 per second", shared = true },
    ]
"#;

fn in_code() -> Vec<Policy> {
    let two = Duration::from_secs(2);
    vec![
        Policy::new("bucket", TokenBucket::new(1, two).burst(6)),
        Policy::new("hand", TokenBucket::without_refill(5)),
        Policy::new("leaky", LeakyBucket::new(1, two).capacity(15)),
        Policy::new("window", FixedWindow::per_hour(3)),
        Policy::new("sliding", SlidingWindow::per_hour(9)),
        Policy::new("log", SlidingLog::new(5, 30 * two)).hold_for(30 * two),
        Policy::new("everyone", TokenBucket::per_second(500)).shared(),
    ]
}

fn clients(server: &RedisServer) -> usize {
    let list = server.command(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains("addr=")).count()
}

#[tokio::test]
async fn a_file_has_one_pool_and_shares_its_buckets_with_code() {
    let server = RedisServer::start();
    let without = clients(&server);
    let file = format!(
        r#"
            version = 1
            store = {{ redis = "{}", prefix = "mine", timeout = "{} s" }}
            layer = {{ api = {{}}, web = {{}} }}
            limiter = {{ jobs = {{}}, mails = {{}} }}
            {POLICIES}
        "#,
        server.url(),
        DEADLINE.as_secs(),
    );
    let limits = Config::from_toml(&file).expect("a file").build();
    let limits = limits.expect("limits");
    let limiter = |name| limits.limiter(name).expect("it is there");
    let (jobs, mails) = (limiter("jobs"), limiter("mails"));
    for limiter in [&jobs, &mails] {
        let decision = limiter.check("ann").await.expect("a decision");
        assert!(decision.is_allowed());
    }
    let of_file = clients(&server) - without;

    let store = patient()
        .prefix("mine")
        .connect(&server.url())
        .expect("a store");
    let of_code = Limiter::builder().store(store);
    let of_code = in_code().into_iter().fold(of_code, LimiterBuilder::policy);
    let of_code = of_code.build().expect("a limiter");
    assert_eq!(jobs.storage_keys("ann"), of_code.storage_keys("ann"));
    assert_eq!(jobs.storage_keys("ann").len(), in_code().len());

    // The third check of a window of three, and the first of this limiter.
    let decision = of_code.check("ann").await.expect("a decision");
    let window = decision.policies().find(|policy| policy.name() == "window");
    assert_eq!(window.map(|policy| policy.remaining()), Some(0));
    let decision = jobs.check("ann").await.expect("a decision");
    let denied: Vec<_> = decision.denied_by().map(|policy| policy.name()).collect();
    assert_eq!(denied, ["window"]);

    let of_store = clients(&server) - without - of_file;
    assert_eq!(of_file, of_store, "as many connections as one store has");
    assert!(of_store > 0);
}
