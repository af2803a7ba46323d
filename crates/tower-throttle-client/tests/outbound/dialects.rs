//! Partners that state their limits in different fields.

use std::{
    io,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use http::{HeaderName, Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{FixedWindow, Key, Limiter, MemoryStore, Pause, Policy, RequestHead};
use tower_throttle_client::{Dialect, OutboundLayer, TimeUnit};
use tracing::Level;

use crate::{
    partner::{Partner, TokioClock, answer},
    recorded::{RECORDED, calls},
};

#[tokio::test(start_paused = true)]
async fn no_call_is_sent_while_a_partner_wants_none() {
    for recorded in RECORDED {
        let (inside, all) = calls(recorded).await;
        assert!(inside == 0 && all > 10, "{}: {inside} of {all}", recorded.0);
    }
}

/// Calls `uri` once, and returns whether the call was sent.
async fn is_sent(layer: &OutboundLayer, uri: &str, response: &Partner) -> bool {
    let partner = response.clone();
    let client = service_fn(move |request| partner.clone().call(request));
    let request = Request::get(uri).body(()).unwrap();
    layer.layer(client).oneshot(request).await.is_ok()
}

fn agrees() -> Partner {
    Partner::new(|_| answer(200, &[]))
}

fn says(status: u16, fields: &'static [(&str, &str)]) -> Partner {
    Partner::new(move |_| answer(status, fields))
}

/// A limit by host and one by route, each with a policy that pauses.
fn by_host_and_route() -> OutboundLayer {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("host", FixedWindow::per_day(100)))
        .policy(Policy::new("global", Pause))
        .policy(Policy::new("route", FixedWindow::per_day(3)))
        .policy(Policy::new("route-pauses", Pause));
    let route = |head: &RequestHead<'_>| Key::from(head.uri().path());
    let layer = OutboundLayer::new(limiter.build().unwrap()).unwrap();
    let layer = layer.policy_key("route", route).unwrap();
    let layer = layer.policy_key("route-pauses", route).unwrap();
    layer.max_wait(Duration::ZERO)
}

const A: &str = "https://partner.example/a";
const B: &str = "https://partner.example/b";

#[tokio::test(start_paused = true)]
async fn a_route_that_is_used_up_does_not_stop_the_others() {
    for fields in [
        &[
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset-after", "4.5"),
        ][..],
        &[("retry-after", "5"), ("x-ratelimit-scope", "shared")],
    ] {
        let layer = by_host_and_route();
        assert!(is_sent(&layer, A, &says(429, fields)).await);
        assert!(!is_sent(&layer, A, &agrees()).await, "{fields:?}");
        assert!(is_sent(&layer, B, &agrees()).await, "{fields:?}");
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(is_sent(&layer, A, &agrees()).await, "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_the_partner_names_pauses_the_policy_of_that_name() {
    for fields in [
        &[("retry-after", "5"), ("x-ratelimit-scope", "global")][..],
        &[("ratelimit", "\"global\";r=0;t=5")],
    ] {
        let layer = by_host_and_route();
        assert!(is_sent(&layer, A, &says(429, fields)).await);
        assert!(!is_sent(&layer, B, &agrees()).await, "{fields:?}");
        let other = "https://other.example/b";
        assert!(is_sent(&layer, other, &agrees()).await, "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_counts_by_its_own_key() {
    let layer = by_host_and_route();
    for _ in 0..3 {
        assert!(is_sent(&layer, A, &agrees()).await);
    }
    assert!(!is_sent(&layer, A, &agrees()).await);
    assert!(is_sent(&layer, B, &agrees()).await);
    // A cost applies to the policies with a key of their own, too.
    let costly = layer.cost(|_| 3);
    assert!(!is_sent(&costly, B, &agrees()).await);
    assert!(is_sent(&costly, "https://partner.example/c", &agrees()).await);

    let error = by_host_and_route().policy_key("rout", |_| Key::everyone());
    let error = error.unwrap_err();
    assert!(error.is_unknown_policy() && !error.is_missing_pause());
    assert!(error.to_string().contains("no policy \"rout\""), "{error}");
}

fn layer() -> OutboundLayer {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let layer = OutboundLayer::new(Limiter::new(store, Policy::new("pauses", Pause))).unwrap();
    layer.max_wait(Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn an_application_adds_the_fields_of_its_partner() {
    const ACME: &[(&str, &str)] = &[
        ("date", "Sat, 28 Nov 2026 10:00:00 GMT"),
        ("acme-left", "0"),
        ("acme-end", "1795860030"),
    ];
    let name = HeaderName::from_static;
    let window = Dialect::window(name("acme-left"), name("acme-end"), TimeUnit::EpochSeconds);
    for (layer, continues) in [(layer(), true), (layer().dialect(window), false)] {
        assert!(is_sent(&layer, A, &says(200, ACME)).await);
        assert_eq!(is_sent(&layer, A, &agrees()).await, continues);
    }
}

/// All spellings of a host and its port are one partner.
#[tokio::test(start_paused = true)]
async fn a_partner_has_one_key_however_its_host_is_spelled() {
    for [first, others @ ..] in [
        [
            "https://api.partner.example/",
            "https://api.partner.example:443/",
            "https://API.partner.example./",
            "http://api.partner.example:80/",
            "http://api.partner.example:0080/",
            "https://me@api.partner.example:443/",
        ],
        [
            "http://localhost:17220/",
            "http://localhost:017220/",
            "http://localhost:0017220/",
            "http://LOCALHOST:17220/",
            "http://localhost.:17220/",
            "http://a:b@localhost:17220/",
        ],
        [
            "https://[2001:db8::1]/",
            "https://[2001:DB8:0::1]/",
            "https://[2001:0db8::0001]:443/",
            "https://[2001:db8:0:0:0:0:0:1]/",
            "https://[2001:DB8::1]:0443/",
            "https://me@[2001:DB8::1]/",
        ],
        [
            "http://[::ffff:192.0.2.1]:8080/",
            "http://192.0.2.1:8080/",
            "http://192.0.2.1:08080/",
            "http://[::FFFF:c000:201]:8080/",
            "http://[0::ffff:192.0.2.1]:8080/",
            "http://me@192.0.2.1:8080/",
        ],
    ] {
        let layer = layer();
        assert!(is_sent(&layer, first, &says(429, &[("retry-after", "30")])).await);
        for other in others {
            assert!(!is_sent(&layer, other, &agrees()).await, "{first} {other}");
        }
    }
    let layer = layer();
    assert!(
        is_sent(
            &layer,
            "http://localhost:17220/",
            &says(429, &[("retry-after", "30")])
        )
        .await
    );
    for other in [
        "http://localhost:17221/",
        "http://localhost/",
        "http://localhost.a:17220/",
    ] {
        assert!(is_sent(&layer, other, &agrees()).await, "{other}");
    }
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts the log of this thread anew. Its subscriber is that of all threads: an event that another
    /// test meets first would otherwise be off for all, as long as only one thread has a subscriber.
    fn start() -> Self {
        thread_local!(static LOG: Log = Log::default());
        static INIT: Once = Once::new();

        let log = || LOG.with(Self::clone);
        INIT.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(Level::WARN)
                .with_ansi(false)
                .without_time()
                .with_writer(log)
                .init();
        });
        log().0.lock().unwrap().clear();
        log()
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_logged_once_for_each_partner_and_counted() {
    let log = Log::start();
    let layer = layer().max_wait(Duration::from_secs(10));
    let unreadable: &[(&str, &str)] =
        &[("retry-after", "soon\tor later"), ("x-should-retry", "no")];
    for uri in [
        A,
        B,
        "https://PARTNER.example:443/",
        "https://other.example:8443/",
    ] {
        assert!(is_sent(&layer, uri, &says(429, unreadable)).await);
        // It has no meaning: the pause is that of any refusal.
        let error = layer.clone().max_wait(Duration::ZERO);
        assert!(!is_sent(&error, uri, &agrees()).await);
        assert!(is_sent(&layer, uri, &agrees()).await);
    }
    assert_eq!(layer.unread_fields(), 8);
    let line = |partner: &str, field: &str| {
        format!(
            " WARN tower_throttle::client: cannot read the field {field}; it counts as not said partner=\"{partner}\""
        )
    };
    let fields = [r"`retry-after` (soon\tor later)", "`x-should-retry` (no)"];
    let expected = ["partner.example", "other.example:8443"]
        .map(|partner| fields.map(|field| line(partner, field)));
    assert_eq!(log.lines(), expected.concat());
}

/// Callers may choose the hosts, so the log of a process is bounded. The count has all.
#[tokio::test(start_paused = true)]
async fn the_fields_of_the_first_thousand_partners_are_logged() {
    let log = Log::start();
    let layer = layer();
    for number in 0..1_030 {
        let uri = format!("https://{number}.example/");
        assert!(is_sent(&layer, &uri, &says(200, &[("retry-after", "soon")])).await);
    }
    assert_eq!((log.lines().len(), layer.unread_fields()), (1_024, 1_030));
}

/// No response of a partner is changed, except for what the layer has found.
#[tokio::test(start_paused = true)]
async fn extensions_of_a_response_stay() {
    let client = service_fn(|_: Request<()>| async {
        let response = Response::builder().status(429).extension(7_u8);
        response.body(String::new())
    });
    let request = Request::get(A).body(()).unwrap();
    let response = layer().layer(client).oneshot(request).await.unwrap();
    assert_eq!(response.extensions().get::<u8>(), Some(&7));
}
