//! Three processes call one partner.

use std::time::Duration;

use http::Request;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    LeakyBucket, Limiter, MemoryStore, OnStoreFailure, Pause, Policy, RedisStore, store::Store,
    testing::SimulatedRedis,
};
use tower_throttle_client::OutboundLayer;

use crate::partner::{Partner, TokioClock, answer};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const WORKERS: usize = 50;

/// 97.5 % of the partner's 20 a second: in 25 ms, calls may overtake each other on their way.
fn limiter(store: impl Store) -> Limiter {
    let pace = LeakyBucket::new(39, 2 * SECOND).queue(200);
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("partner-pace", pace))
        .policy(Policy::new("partner-pauses", Pause))
        .on_store_failure(OnStoreFailure::share_of(3));
    limiter.build().unwrap()
}

/// Three stores on one simulated Redis, whose replies take 2 ms.
fn processes() -> Vec<(Limiter, SimulatedRedis)> {
    let redis = SimulatedRedis::new();
    let process = |_| {
        let network = redis.over_another_network();
        network.set_delay(Duration::from_millis(1));
        let store = RedisStore::builder().simulated(&network).unwrap();
        (limiter(store), network)
    };
    (0..3).map(process).collect()
}

/// Lets the workers of these processes call as often as they may. They never give up.
async fn work(processes: &[Limiter], partner: &Partner, time: Duration) {
    let end = Instant::now() + time;
    let mut workers = JoinSet::new();
    for limiter in processes {
        let layer = OutboundLayer::new(limiter.clone()).unwrap();
        let layer = layer.max_wait(2 * MINUTE);
        let partner = partner.clone();
        let client = layer.layer(service_fn(move |request| partner.clone().call(request)));
        for _ in 0..WORKERS {
            let client = client.clone();
            workers.spawn(async move {
                while Instant::now() < end {
                    let request = Request::get("http://partner.example/").body(()).unwrap();
                    let _ = client.clone().oneshot(request).await.unwrap();
                }
            });
        }
    }
    sleep(time).await;
    workers.abort_all();
    while workers.join_next().await.is_some() {}
}

fn between(calls: &[Duration], from: Duration, to: Duration) -> usize {
    calls.iter().filter(|at| (from..to).contains(*at)).count()
}

#[tokio::test(start_paused = true)]
async fn a_fleet_uses_97_percent_of_what_the_partner_allows_and_sees_no_429() {
    let partner = Partner::per_second(20);
    let processes: Vec<_> = processes()
        .into_iter()
        .map(|(limiter, _)| limiter)
        .collect();
    work(&processes, &partner, MINUTE).await;
    assert_eq!(partner.calls(429), []);
    let calls = partner.calls(200).len();
    assert!(calls * 100 >= 97 * 20 * 60, "{calls}");
}

/// One process gets the refusal, and all stop: at once in memory, after a round trip on Redis.
#[tokio::test(start_paused = true)]
async fn retry_after_stops_a_fleet_until_its_end() {
    let in_memory = vec![limiter(MemoryStore::builder().clock(TokioClock::new()).build()); 3];
    let on_redis = processes()
        .into_iter()
        .map(|(limiter, _)| limiter)
        .collect();
    for (name, processes) in [("memory", in_memory), ("Redis", on_redis)] {
        let mut refuses_at = vec![30 * SECOND, 10 * SECOND];
        let partner = Partner::new(move |seen| {
            let is_due = refuses_at.last().is_some_and(|at| seen.at >= *at);
            match is_due.then(|| refuses_at.pop()) {
                Some(_) => answer(429, &[("retry-after", "3")]),
                None => answer(200, &[]),
            }
        });
        work(&processes, &partner, MINUTE).await;
        let calls = partner.calls(200);
        let refused = partner.calls(429);
        assert_eq!(refused.len(), 2, "{name}");
        for refused in refused {
            let told = refused + Duration::from_millis(5);
            let late = between(&calls, refused, told + 3 * SECOND);
            assert!(late <= 1, "{name}: {late} calls were under way");
            let last = calls.iter().rfind(|at| **at < told + 3 * SECOND);
            assert!(
                *last.unwrap() < refused + Duration::from_millis(100),
                "{name}"
            );
            let next = between(&calls, told + 3 * SECOND, told + 4 * SECOND);
            assert!(
                (18..=20).contains(&next),
                "{name}: {next} calls after the pause"
            );
        }
        // It loses 3 s twice, and no other time.
        assert!(calls.len() * 100 >= 97 * 20 * 54, "{name}: {}", calls.len());
    }
}

/// The places that callers had reserved in Redis stay theirs, so shares are exact once those are used.
#[tokio::test(start_paused = true)]
async fn without_redis_each_process_keeps_its_share() {
    let processes = processes();
    let networks: Vec<_> = processes
        .iter()
        .map(|(_, network)| network.clone())
        .collect();
    tokio::spawn(async move {
        sleep(20 * SECOND).await;
        networks
            .iter()
            .for_each(|network| network.set_connected(false));
        sleep(30 * SECOND).await;
        networks
            .iter()
            .for_each(|network| network.set_connected(true));
    });
    let partners = [(); 3].map(|()| Partner::new(|_| answer(200, &[])));
    let work = processes
        .iter()
        .zip(&partners)
        .map(|((limiter, _), partner)| {
            let (limiter, partner) = (limiter.clone(), partner.clone());
            async move { work(&[limiter], &partner, 70 * SECOND).await }
        });
    work.collect::<JoinSet<()>>().join_all().await;
    let calls = partners.map(|partner| partner.calls(200));
    for calls in &calls {
        let share = between(calls, 30 * SECOND, 50 * SECOND);
        assert!((129..=131).contains(&share), "{share} of 130");
    }
    let all = |from, to| {
        calls
            .iter()
            .map(|calls| between(calls, from, to))
            .sum::<usize>()
    };
    let overlap = all(20 * SECOND, 30 * SECOND);
    assert!(overlap <= 2 * 195, "{overlap}: more than twice the pace");
    for from in [0, 60] {
        let all = all(from * SECOND, (from + 10) * SECOND);
        assert!((194..=196).contains(&all), "{all} of 195 from {from} s on");
    }
}

/// A partner who says that it admits half of our quota is obeyed: what is left, and no more.
#[tokio::test(start_paused = true)]
async fn a_partner_that_allows_less_than_the_quota_is_obeyed() {
    let mut window = (0, 0);
    let partner = Partner::new(move |seen| {
        let second = seen.at.as_secs();
        window = if window.0 == second {
            (second, window.1 + 1)
        } else {
            (second, 1)
        };
        let left = 10_u64.checked_sub(window.1);
        let ends_ms = 1_000 - seen.at.subsec_millis();
        let ends = format!("{}.{:03}", ends_ms / 1_000, ends_ms % 1_000);
        let fields = |left: &str| {
            let fields = [
                ("x-ratelimit-remaining", left),
                ("x-ratelimit-reset", &ends),
            ];
            fields.map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let (status, left) = left.map_or((429, 0), |left| (200, left));
        let fields = fields(&left.to_string());
        answer(
            status,
            &fields.each_ref().map(|(name, value)| (&**name, &**value)),
        )
    });
    let processes: Vec<_> = processes()
        .into_iter()
        .map(|(limiter, _)| limiter)
        .collect();
    work(&processes, &partner, MINUTE).await;
    let (calls, refused) = (partner.calls(200).len(), partner.calls(429).len());
    assert!(calls * 100 >= 97 * 10 * 60, "{calls}");
    assert!(refused <= 1, "{refused} refused");
}
