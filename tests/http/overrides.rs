//! What a control document does in a layer: quotas and bans of single callers, modes, lists.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tower_throttle::{
    DenialReason, Fingerprint, FixedWindow, HeaderFormat, Hold, Key, Lists, ManualClock,
    MemoryStore, OnStoreFailure, Policy, Quota, RateLimitLayer, RateLimitLayerBuilder, RequestHead,
    TokenBucket,
    control::{Control, Mode},
    key::{self, PeerAddr},
    settle,
};

use crate::support::{
    overlaid::{KEYS, POLICIES, Told, quota, seen},
    random::Random,
    web::{Answer, Down, Slow, as_grpc, ask, at_once, get, hello, read, standing_store},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a change.
async fn made<T, E: std::fmt::Debug>(change: impl IntoFuture<Output = Result<T, E>>) -> T {
    change.await.expect("it is made")
}

fn plan(limit: u64) -> Policy {
    Policy::new("plan", FixedWindow::per_hour(limit)).key(key::header("x-api-key"))
}

fn quota_of(quota: impl TryInto<Quota, Error: std::fmt::Debug>) -> Quota {
    quota.try_into().expect("a quota")
}

/// A layer with this document, on a store whose clock stands.
fn layer<const N: usize>(
    policies: [Policy; N],
    set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> (RateLimitLayer, Control, Arc<ManualClock>) {
    let (store, clock) = standing_store();
    let control = store.control();
    let builder = RateLimitLayer::builder()
        .store(store)
        .decision_in_extensions();
    let builder = policies
        .into_iter()
        .fold(builder, RateLimitLayerBuilder::policy);
    let layer = set(builder).control(control.clone()).build();
    (layer.expect("valid"), control, clock)
}

fn of(key: &str) -> Request<Full<Bytes>> {
    get([("x-api-key", key)])
}

fn asked(layer: &RateLimitLayer, key: &str) -> Answer {
    ask(layer, of(key))
}

fn admitted(layer: &RateLimitLayer, key: &str) -> usize {
    let asked = (0..50).map(|_| asked(layer, key).status == 200);
    asked.take_while(|is_allowed| *is_allowed).count()
}

#[tokio::test]
async fn random_documents_decide_like_layers_in_code() {
    let mut random = Random::new();
    for _ in 0..30 {
        let ((store, clock), (other, other_clock)) = (standing_store(), standing_store());
        let control = store.control();
        let base = [quota(&mut random), quota(&mut random)];
        let builder = |store: &MemoryStore| {
            let builder = RateLimitLayer::builder().store(store.clone());
            builder.decision_in_extensions()
        };
        let policy =
            |name: &str, quota: Quota| Policy::new(name, quota).key(key::header("x-api-key"));
        let mut with_document = builder(&store).control(control.clone());
        for (name, quota) in POLICIES.iter().zip(base) {
            with_document = with_document.policy(policy(name, quota));
        }
        let layer = with_document.build().expect("valid");
        let mut told = Told::default();
        for _ in 0..60 {
            let step = Duration::from_millis(random.below(900));
            clock.advance(step);
            other_clock.advance(step);
            let now = std::time::UNIX_EPOCH
                + Duration::from_micros(tower_throttle::Clock::now_us(&*clock));
            if random.percent(15) {
                told.change(&control, &mut random, now).await;
            }
            let key = random.below(3) as usize;
            let answer = asked(&layer, KEYS[key]);
            if !told.bans(key, now).is_empty() {
                assert_eq!(answer.reason, Some(DenialReason::Banned), "{told:?}");
                continue;
            }
            let mut in_code = builder(&other);
            let mut is_any = false;
            for (number, name) in POLICIES.iter().enumerate() {
                let quota = told.quotas.get(&(number, key)).unwrap_or(&base[number]);
                let policy = policy(name, *quota);
                let policy = match told.modes.get(&number) {
                    Some(Mode::Off) => continue,
                    Some(Mode::Shadow) => policy.shadow(),
                    _ => policy,
                };
                is_any = true;
                in_code = in_code.policy(policy);
            }
            if !is_any {
                assert_eq!(
                    (answer.status.as_u16(), answer.field("ratelimit")),
                    (200, None)
                );
                continue;
            }
            let expected = asked(&in_code.build().expect("valid"), KEYS[key]);
            let told_of = |answer: &Answer| {
                let decision = answer.decision.as_ref().map(seen);
                (
                    answer.status,
                    answer.headers.clone(),
                    answer.body.clone(),
                    decision,
                )
            };
            assert_eq!(told_of(&answer), told_of(&expected), "{told:?} {base:?}");
        }
    }
}

#[tokio::test]
async fn a_quota_of_the_document_is_before_that_of_the_request() {
    let tier = plan(1)
        .quota_by(|_| quota_of(FixedWindow::per_hour(3)))
        .cost_by(|_| 2);
    let (layer, control, _) = layer([tier], |builder| builder);
    assert_eq!((admitted(&layer, "ann"), admitted(&layer, "bob")), (1, 1));
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_hour(8)));
    raised.await.expect("an override");
    assert_eq!((admitted(&layer, "ann"), admitted(&layer, "bob")), (3, 0));
    // A cost that the quota can never grant is impossible, as under a tier.
    let lowered = control.override_quota("plan", "eve", quota_of(FixedWindow::per_hour(1)));
    lowered.await.expect("an override");
    assert_eq!(
        asked(&layer, "eve").reason,
        Some(DenialReason::CostImpossible)
    );
}

#[tokio::test]
async fn a_ban_by_hand_is_denied_as_one_by_a_penalty() {
    let (layer, control, clock) = layer([plan(2)], |builder| builder);
    made(control.ban("plan", "ann", HOUR).because("scraping")).await;
    let denied = asked(&layer, "ann");
    assert_eq!(
        (denied.status.as_u16(), denied.reason),
        (429, Some(DenialReason::Banned))
    );
    assert_eq!(denied.field("retry-after").as_deref(), Some("3600"));
    assert_eq!(
        denied.field("ratelimit").as_deref(),
        Some(r#""plan";r=0;t=3600"#)
    );
    assert_eq!(denied.field("ratelimit-policy"), None);
    let problem: serde_json::Value = serde_json::from_slice(&denied.body).expect("JSON");
    assert_eq!(
        problem["type"],
        json!("https://iana.org/assignments/http-problem-types#abnormal-usage-detected")
    );
    assert_eq!(problem["violated-policies"], json!(["plan"]));
    let grpc = ask(&layer, as_grpc(of("ann")));
    assert_eq!(
        (grpc.status.as_u16(), grpc.reason),
        (200, Some(DenialReason::Banned))
    );
    assert_eq!(grpc.field("grpc-status").as_deref(), Some("8"));

    let counts = layer.metrics();
    assert_eq!((counts.requests.banned, counts.requests.total()), (2, 2));
    assert_eq!(counts.policy("plan").map(|checks| checks.denied), Some(2));
    let top = layer.top_denied(5);
    let worst = &top.offenders[0];
    assert_eq!((worst.policy.as_str(), worst.count), ("plan", 2));
    assert_eq!(worst.fingerprint, Fingerprint::from(&Key::from("ann")));
    assert_eq!(layer.recent_denials()[0].reason, DenialReason::Banned);

    let buckets = {
        let request = of("ann");
        layer.buckets(&RequestHead::from(&request)).expect("a key")
    };
    assert!(!buckets.peek().await.expect("in memory").is_allowed());
    assert!(buckets.debit(1).await.expect("in memory").is_allowed());
    clock.advance(HOUR);
    assert_eq!(asked(&layer, "ann").status, 200);
}

#[tokio::test]
async fn a_ban_sends_its_partition_and_other_formats_know_it() {
    let (layer, control, _) = layer([plan(2)], |builder| builder.partition_key_secret(&[7; 32]));
    let pk = |answer: &Answer| {
        let field = answer.field("ratelimit").expect("a field");
        field.split_once(";pk=").map(|(_, key)| key.to_owned())
    };
    let before = pk(&asked(&layer, "ann"));
    made(control.ban("plan", "ann", HOUR)).await;
    assert_eq!(pk(&asked(&layer, "ann")), before);
    assert!(before.is_some());

    for format in [HeaderFormat::Draft7, HeaderFormat::XRateLimitDelta] {
        let (layer, control, _) = self::layer([plan(2)], |builder| builder.headers(format));
        made(control.ban("plan", "ann", HOUR)).await;
        let denied = asked(&layer, "ann");
        assert_eq!(denied.field("retry-after").as_deref(), Some("3600"));
    }
}

#[tokio::test]
async fn lists_by_hand_stand_beside_those_of_the_layer() {
    let lists = Lists::new().client_address(key::peer());
    let lists = lists.deny_ips(["198.51.100.0/24"]).expect("ranges");
    let (layer, control, _) = layer([plan(1)], |builder| builder.lists(lists));
    let from = |peer: &str, key: &str| {
        let mut request = of(key);
        let peer: SocketAddr = format!("{peer}:4711").parse().expect("an address");
        request.extensions_mut().insert(PeerAddr(peer));
        ask(&layer, request).status.as_u16()
    };
    assert_eq!(from("198.51.100.9", "a"), 403);
    control.allow_ip("198.51.100.9").await.expect("an entry");
    control.deny_ip("203.0.113.0/24").await.expect("an entry");
    control.deny_key("bob").await.expect("an entry");
    made(control.ban("plan", "ann", HOUR)).await;
    assert_eq!(
        [from("198.51.100.9", "a"), from("198.51.100.8", "a")],
        [200, 403]
    );
    assert_eq!(
        [from("203.0.113.5", "a"), from("192.0.2.1", "bob")],
        [403, 403]
    );
    // Allow before deny before bans before policies.
    assert_eq!(
        [from("198.51.100.9", "bob"), from("198.51.100.9", "ann")],
        [200, 200]
    );
    assert_eq!(
        [from("203.0.113.5", "ann"), from("192.0.2.1", "ann")],
        [403, 429]
    );
}

#[tokio::test]
async fn a_layer_that_reads_no_addresses_ignores_those_that_are_listed() {
    let (layer, control, _) = layer([plan(1)], |builder| builder);
    control.deny_ip("203.0.113.0/24").await.expect("an entry");
    control.deny_key("bob").await.expect("an entry");
    assert_eq!((admitted(&layer, "ann"), admitted(&layer, "bob")), (1, 0));
}

#[tokio::test]
async fn a_dropped_layer_is_forgotten_and_its_services_follow_on() {
    let (store, _) = standing_store();
    let control = store.control();
    let build = || {
        let builder = RateLimitLayer::builder()
            .store(store.clone())
            .policy(plan(1));
        builder.control(control.clone()).build().expect("valid")
    };
    let unknown = async || {
        control.refresh().await.expect("in memory");
        control.status().unknown_policies
    };
    made(control.set_mode("plan", Mode::Off)).await;
    assert_eq!(unknown().await, ["plan"]);
    let layer = build();
    let service = tower::Layer::layer(&layer, tower::service_fn(hello));
    drop(layer);
    assert_eq!(unknown().await, Vec::<String>::new());
    let ask = || {
        let answer = tower::ServiceExt::oneshot(service.clone(), of("ann"));
        at_once(answer).expect("infallible").status().as_u16()
    };
    assert_eq!([ask(), ask()], [200, 200]);
    made(control.clear_mode("plan")).await;
    assert_eq!([ask(), ask()], [200, 429]);
    drop(service);
    made(control.set_mode("plan", Mode::Off)).await;
    assert_eq!(unknown().await, ["plan"]);
}

#[tokio::test]
async fn keys_stay_listed_while_their_policy_is_off() {
    let everyone = Policy::new("everyone", FixedWindow::per_hour(4)).shared();
    let lists = Lists::new().deny_keys(["stolen"]).expect("a key");
    let lists = lists.allow_keys(["status"]).expect("a key");
    let (layer, control, _) = layer([plan(5), everyone], |builder| builder.lists(lists));
    made(control.deny_key("by hand")).await;
    let seen = || ["stolen", "by hand", "status"].map(|key| asked(&layer, key).status.as_u16());
    assert_eq!(seen(), [403, 403, 200]);
    made(control.set_mode("plan", Mode::Off)).await;
    for _ in 0..3 {
        assert_eq!(seen(), [403, 403, 200]);
    }
}

#[tokio::test]
async fn an_allowed_key_stays_exempt_while_another_policy_is_off() {
    let other = Policy::new("other", FixedWindow::per_hour(1)).key(key::header("x-other"));
    let lists = Lists::new().allow_keys(["partner"]).expect("a key");
    let (layer, control, _) = layer([plan(1), other], |builder| builder.lists(lists));
    made(control.set_mode("other", Mode::Off)).await;
    let request = || get([("x-api-key", "partner"), ("x-other", "bob")]);
    for _ in 0..3 {
        assert_eq!(ask(&layer, request()).status, 200);
    }
    assert_eq!(layer.metrics().requests.exempt, 3);
    // What is off denies nothing for its key.
    let mut twice = request();
    let second = "cid".parse().expect("a value");
    twice.headers_mut().append("x-other", second);
    assert_eq!(ask(&layer, twice).status, 200);
}

/// Its handler is the same, whether the policy is on or off.
#[tokio::test]
async fn a_handler_has_its_handle_while_the_policy_is_off() {
    let tokens = plan(9).settle_by(settle::header("x-tokens-used"));
    let (layer, control, _) = layer([tokens], |builder| builder);
    let handler = tower::service_fn(async |request: Request<Full<Bytes>>| {
        let hold = request.extensions().get::<Hold>();
        let held = hold.map(|hold| hold.units("plan"));
        let answer = http::Response::builder().header("x-tokens-used", "1");
        Ok::<_, std::convert::Infallible>(answer.body(format!("{held:?}")).expect("valid"))
    });
    let service = tower::Layer::layer(&layer, handler);
    let held = async || {
        let answer = tower::ServiceExt::oneshot(service.clone(), of("ann")).await;
        let answer = answer.expect("infallible");
        // The field of the settler stays hidden.
        assert!(!answer.headers().contains_key("x-tokens-used"));
        let body = http_body_util::BodyExt::collect(answer.into_body()).await;
        body.expect("a body").to_bytes()
    };
    assert_eq!(held().await, "Some(Some(1))");
    made(control.set_mode("plan", Mode::Off)).await;
    assert_eq!(held().await, "Some(None)");
}

/// The document changes while the first policy reads its cost, and while the store is asked.
#[tokio::test]
async fn a_request_sees_one_version_of_the_document_for_all_of_its_way() {
    const BOTH: &str = r#""first";q=9;w=3600, "plan";q=9;w=3600"#;
    const FIRST: &str = r#""first";q=9;w=3600"#;

    let (store, _) = standing_store();
    let control = store.control();
    let is_off = Arc::new(AtomicBool::new(false));
    let (changed, next) = (control.clone(), Arc::clone(&is_off));
    let first = Policy::new("first", FixedWindow::per_hour(9)).cost_by(move |_| {
        let mode = match next.fetch_xor(true, Ordering::Relaxed) {
            true => Mode::Enforce,
            false => Mode::Off,
        };
        at_once(changed.set_mode("plan", mode).into_future()).expect("a mode");
        1
    });
    let slow = Slow::new(store);
    let builder = RateLimitLayer::builder().store(slow.clone());
    let builder = builder.policy(first.key(key::header("x-api-key")));
    let layer = builder.policy(plan(9)).control(control.clone()).build();
    let layer = layer.expect("valid");
    for expected in [BOTH, FIRST, BOTH, FIRST] {
        let mut service = tower::Layer::layer(&layer, tower::service_fn(hello));
        let response = tower::Service::call(&mut service, of("ann"));
        // The request has seen its version, and waits for the store.
        made(control.ban("plan", "ann", HOUR)).await;
        slow.gate.add_permits(1);
        let answer = read(at_once(response).expect("infallible"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit-policy").as_deref(), Some(expected));
        control.unban("plan", "ann").await.expect("no ban");
    }
    assert!(!is_off.load(Ordering::Relaxed));
}

#[tokio::test]
async fn policies_that_are_off_are_not_announced_while_the_store_fails() {
    let control = Control::in_memory();
    let builder = RateLimitLayer::builder().store(Down);
    let builder = builder
        .on_store_failure(OnStoreFailure::Allow)
        .policy(plan(3));
    let burst = Policy::new("burst", TokenBucket::per_hour(1));
    let layer = builder.policy(burst.key(key::header("x-api-key")));
    let layer = layer.control(control.clone()).build().expect("valid");
    let announced = || asked(&layer, "ann").field("ratelimit-policy");
    let both = r#""plan";q=3;w=3600, "burst";q=1;w=3600"#;
    assert_eq!(announced().as_deref(), Some(both));
    made(control.set_mode("burst", Mode::Off)).await;
    assert_eq!(announced().as_deref(), Some(r#""plan";q=3;w=3600"#));
    control.clear_mode("burst").await.expect("no mode");
    assert_eq!(announced().as_deref(), Some(both));
}

#[tokio::test]
async fn a_layer_on_another_store_keeps_the_document_as_it_was() {
    let (layer, control, _) = layer([plan(1)], |builder| builder);
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_hour(5)));
    raised.await.expect("an override");
    let other = layer.clone().store(standing_store().0);
    control.clear_override("plan", "ann").await.expect("none");
    assert_eq!((admitted(&layer, "ann"), admitted(&other, "ann")), (1, 5));
}
