//! What a control document does in a layer: quotas and bans of single callers, modes, lists.

use tower_throttle::control::{Control, Mode};

use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn plan(limit: u64) -> Policy {
    Policy::new("plan", FixedWindow::per_hour(limit)).key(key::header("x-api-key"))
}

/// A layer with this document, on a store whose clock stands.
fn layer(
    policies: impl IntoIterator<Item = Policy>,
    set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> (RateLimitLayer, Control, Arc<ManualClock>) {
    let (store, clock) = standing_store();
    let control = store.control();
    let (layer, _) = layer_with(policies, |builder| {
        set(builder.store(store)).control(control.clone())
    });
    (layer, control, clock)
}

async fn set_quota(control: &Control, caller: &str, limit: u64) {
    let quota = FixedWindow::per_hour(limit).try_into().expect("a quota");
    let change = control.override_quota("plan", caller, quota);
    change.await.expect("an override");
}

async fn ban_ann(control: &Control) {
    let change = control.ban("plan", "ann", HOUR).because("scraping");
    change.await.expect("a ban");
}

async fn set_mode(control: &Control, policy: &str, mode: Mode) {
    control.set_mode(policy, mode).await.expect("a mode");
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
async fn a_quota_of_the_document_is_before_that_of_the_request() {
    let tier: Quota = "fixed window of 3 per hour".parse().expect("a quota");
    let tier = plan(1).quota_by(move |_| tier).cost_by(|_| 2);
    let (layer, control, _) = layer([tier], |builder| builder);
    assert_eq!(["ann", "bob"].map(|key| admitted(&layer, key)), [1, 1]);
    set_quota(&control, "ann", 8).await;
    let other = layer.clone().store(standing_store().0);
    assert_eq!(["ann", "bob"].map(|key| admitted(&layer, key)), [3, 0]);
    // A cost that the quota can never grant is impossible, as under a tier.
    set_quota(&control, "eve", 1).await;
    let impossible = asked(&layer, "eve").reason;
    assert_eq!(impossible, Some(DenialReason::CostImpossible));
    // A layer on another store keeps the document as it was.
    assert_eq!(["ann", "eve"].map(|key| admitted(&other, key)), [4, 1]);
}

#[tokio::test]
async fn a_ban_by_hand_is_denied_as_one_by_a_penalty() {
    let (layer, control, clock) = layer([plan(2)], |builder| builder);
    ban_ann(&control).await;
    let denied = asked(&layer, "ann");
    assert_eq!(denied.reason, Some(DenialReason::Banned));
    denied.assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 3600
RateLimit: "plan";r=0;t=3600

{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"violated-policies":["plan"]}"#,
    );
    let grpc = ask(&layer, as_grpc(of("ann")));
    let found = (grpc.status.as_u16(), grpc.reason);
    assert_eq!(found, (200, Some(DenialReason::Banned)));
    assert_eq!(grpc.field("grpc-status").as_deref(), Some("8"));

    let worst = &layer.top_denied(5).offenders[0];
    assert_eq!((worst.policy.as_str(), worst.count), ("plan", 2));
    assert_eq!(worst.fingerprint, Fingerprint::from(&Key::from("ann")));
    assert_eq!(layer.recent_denials()[0].reason, DenialReason::Banned);
    let seen = layer.metrics();
    assert_eq!((seen.requests.banned, seen.decisions.list), (2, 2));

    clock.advance(HOUR);
    assert_eq!(asked(&layer, "ann").status, 200);
}

#[tokio::test]
async fn a_ban_sends_its_partition_and_other_formats_know_it() {
    let (layer, control, _) = layer([plan(2)], |builder| builder.partition_key_secret(&[7; 32]));
    let pk = || {
        let field = asked(&layer, "ann").field("ratelimit").expect("a field");
        field.split_once(";pk=").expect("a partition").1.to_owned()
    };
    let before = pk();
    ban_ann(&control).await;
    assert_eq!(pk(), before);

    for format in [HeaderFormat::Draft7, HeaderFormat::XRateLimitDelta] {
        let (layer, control, _) = self::layer([plan(2)], |builder| builder.headers(format));
        ban_ann(&control).await;
        assert_eq!(asked(&layer, "ann").number("retry-after"), 3_600);
    }
}

/// Allow before deny before bans before policies.
#[tokio::test]
async fn lists_by_hand_stand_beside_those_of_the_layer() {
    let lists = Lists::new().client_address(key::peer());
    let lists = lists.deny_ips(["198.51.100.0/24"]).expect("ranges");
    let (layer, control, _) = layer([plan(1)], |builder| builder.lists(lists));
    control.allow_ip("198.51.100.9").await.expect("an entry");
    control.deny_ip("203.0.113.0/24").await.expect("an entry");
    control.deny_key("plan", "bob").await.expect("an entry");
    ban_ann(&control).await;
    for (peer, key, status) in [
        ("198.51.100.9", "a", 200),
        ("198.51.100.9", "bob", 200),
        ("198.51.100.9", "ann", 200),
        ("198.51.100.8", "a", 403),
        ("203.0.113.5", "a", 403),
        ("203.0.113.5", "ann", 403),
        ("192.0.2.1", "bob", 403),
        ("192.0.2.1", "ann", 429),
    ] {
        let request = from_peer(peer, [("x-api-key", key)]);
        assert_eq!(ask(&layer, request).status, status, "{peer} {key}");
    }
    // A layer that reads no addresses ignores those that are listed.
    let (layer, control, _) = self::layer([plan(1)], |builder| builder);
    control.deny_ip("203.0.113.0/24").await.expect("an entry");
    control.deny_key("plan", "bob").await.expect("an entry");
    assert_eq!(["ann", "bob"].map(|key| admitted(&layer, key)), [1, 0]);
}

#[tokio::test]
async fn keys_stay_listed_while_their_policy_or_another_is_off() {
    let other = Policy::new("other", FixedWindow::per_hour(1)).key(key::header("x-other"));
    let lists = Lists::new().deny_keys("plan", ["stolen"]).expect("a key");
    let lists = lists.allow_keys("plan", ["partner"]).expect("a key");
    let (layer, control, _) = layer([plan(1), other], |builder| builder.lists(lists));
    let by_hand = control.deny_key("plan", "by hand").await;
    by_hand.expect("an entry");
    let request = |key| get([("x-api-key", key), ("x-other", "bob")]);
    let seen =
        || ["stolen", "by hand", "partner"].map(|key| ask(&layer, request(key)).status.as_u16());
    assert_eq!(seen(), [403, 403, 200]);
    set_mode(&control, "other", Mode::Off).await;
    for _ in 0..3 {
        assert_eq!(seen(), [403, 403, 200]);
    }
    assert_eq!(layer.metrics().requests.exempt, 3);
    // What is off denies nothing for its key.
    let mut twice = request("partner");
    twice
        .headers_mut()
        .append("x-other", "cid".parse().expect("a value"));
    assert_eq!(ask(&layer, twice).status, 200);
    set_mode(&control, "plan", Mode::Off).await;
    for _ in 0..3 {
        assert_eq!(seen(), [403, 403, 200]);
    }
}

#[tokio::test]
async fn a_handler_has_its_handle_while_the_policy_is_off() {
    let tokens = plan(9).settle_by(settle::header("x-tokens-used"));
    let (layer, control, _) = layer([tokens], |builder| builder);
    let handler = |request: Request<Full<Bytes>>| {
        let held = request.extensions().get::<Hold>();
        let held = format!("{:?}", held.expect("a handle").units("plan"));
        let answer = Response::builder().header("x-tokens-used", "1");
        ready(answer.body(Full::<Bytes>::from(held)))
    };
    let answer = || ask_service(layer.layer(service_fn(handler)), of("ann"));
    let on = answer();
    set_mode(&control, "plan", Mode::Off).await;
    for (answer, held) in [(on, "Some(1)"), (answer(), "None")] {
        assert_eq!(answer.text(), held);
        // The field of the settler stays hidden.
        assert_eq!(answer.field("x-tokens-used"), None);
    }
}

/// The document changes while the first policy reads its cost, and while the store is asked.
#[tokio::test]
async fn a_request_sees_one_version_of_the_document_for_all_of_its_way() {
    const BOTH: &str = r#""first";q=9;w=3600, "plan";q=9;w=3600"#;
    const FIRST: &str = r#""first";q=9;w=3600"#;

    let (store, _) = standing_store();
    let control = store.control();
    let is_off = AtomicBool::new(false);
    let changed = control.clone();
    let first = Policy::new("first", FixedWindow::per_hour(9)).cost_by(move |_| {
        let mode = match is_off.fetch_xor(true, Ordering::Relaxed) {
            true => Mode::Enforce,
            false => Mode::Off,
        };
        at_once(changed.set_mode("plan", mode).into_future()).expect("a mode");
        1
    });
    let slow = Slow::new(store);
    let policies = [first.key(key::header("x-api-key")), plan(9)];
    let (layer, _) = layer_with(policies, |builder| {
        builder.store(slow.clone()).control(control.clone())
    });
    for expected in [BOTH, FIRST, BOTH, FIRST] {
        let response = layer.layer(service_fn(hello)).call(of("ann"));
        // The request has seen its version, and waits for the store.
        ban_ann(&control).await;
        slow.gate.add_permits(1);
        let answer = read(at_once(response).expect("infallible"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit-policy").as_deref(), Some(expected));
        control.unban("plan", "ann").await.expect("no ban");
    }
}

#[tokio::test]
async fn policies_that_are_off_are_not_announced_while_the_store_fails() {
    let control = Control::in_memory();
    let burst = Policy::new("burst", TokenBucket::per_hour(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_with([plan(3), burst], |builder| {
        let builder = builder.store(Down).on_store_failure(OnStoreFailure::Allow);
        builder.control(control.clone())
    });
    let announced = || asked(&layer, "ann").field("ratelimit-policy");
    let both = r#""plan";q=3;w=3600, "burst";q=1;w=3600"#;
    assert_eq!(announced().as_deref(), Some(both));
    set_mode(&control, "burst", Mode::Off).await;
    assert_eq!(announced().as_deref(), Some(r#""plan";q=3;w=3600"#));
    control.clear_mode("burst").await.expect("no mode");
    assert_eq!(announced().as_deref(), Some(both));
}
