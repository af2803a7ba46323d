//! A client that opens very many HTTP/2 streams, and hangs up on all of them, costs no other
//! caller a decision.

use axum::{Router, extract::Request, middleware::map_request, routing::get};
use http_body_util::Empty;
use hyper::client::conn::http2::SendRequest;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tower_throttle::RedisStore;

use crate::{support::prelude::*, wire::http2};

const STREAMS: usize = 1_000;
/// The number of streams that are opened at a time.
const AT_ONCE: usize = 20;
/// Of other callers, on each of two routes.
const CHECKS: usize = 300;
const LOGINS: u64 = 5;

type Client = SendRequest<Empty<&'static [u8]>>;

/// Serves the routes of one process, all on one store.
async fn serve(store: &RedisStore, entered: &Arc<AtomicUsize>) -> std::net::SocketAddr {
    let waiting = |wait, policy: Policy, choice| {
        let builder = RateLimitLayer::builder().store(store.clone());
        let builder = builder.policy(policy.key(key::global())).wait_up_to(wait);
        builder.on_store_failure(choice).build().expect("a layer")
    };
    let layer = |policy, choice| waiting(Duration::ZERO, policy, choice);
    let minute = Duration::from_secs(60);
    let held = Policy::new("held", Concurrency::new(5_000));
    let queue = Policy::new("queue", TokenBucket::per_second(100).burst(1));
    let api = Policy::new("api", TokenBucket::per_second(1_000_000));
    let login = Policy::new("login", TokenBucket::per_day(LOGINS));
    let entered = Arc::clone(entered);
    let forever = || std::future::pending::<()>();
    let [deny, allow] = [OnStoreFailure::Deny, OnStoreFailure::Allow];
    let queue = get(forever).layer(waiting(minute, queue, deny));
    let app = Router::new()
        .route("/held", get(forever).layer(layer(held, deny)))
        .route("/queue", queue)
        .route("/api", get(async || ()).layer(layer(api, deny)))
        .route("/login", get(async || ()).layer(layer(login, allow)))
        .layer(map_request(move |request: Request| {
            let is_held = ["/held", "/queue"].contains(&request.uri().path());
            entered.fetch_add(usize::from(is_held), Ordering::Relaxed);
            std::future::ready(request)
        }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(app.clone());
            tokio::spawn(async move {
                let mut server = Builder::new(TokioExecutor::new());
                server.http2().max_concurrent_streams(2 * STREAMS as u32);
                let served = server.serve_connection(TokioIo::new(stream), service);
                let _ = served.await;
            });
        }
    });
    address
}

async fn status(mut client: Client, path: &str) -> u16 {
    client.ready().await.expect("a connection");
    let request = http::Request::get(format!("http://localhost{path}"));
    let request = request.body(Empty::new()).expect("a request");
    let response = client.send_request(request).await.expect("a response");
    response.status().as_u16()
}

/// Other callers are all answered, and none is let in too often, while a client hangs up on all
/// its streams to `path`.
async fn is_not_noticed(path: &'static str) {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    eventually_async("a connection", || async {
        store.health_check().await.is_ok()
    })
    .await;
    let entered = Arc::default();
    let address = serve(&store, &entered).await;
    let (client, other) = (http2(address).await, http2(address).await);

    let mut streams = JoinSet::new();
    while entered.load(Ordering::Relaxed) < STREAMS {
        let before = entered.load(Ordering::Relaxed);
        for _ in 0..AT_ONCE {
            let client = client.clone();
            streams.spawn(async move { status(client, path).await });
        }
        eventually_async("all streams", || async {
            entered.load(Ordering::Relaxed) >= before + AT_ONCE
        })
        .await;
        // The requests before it are answered by then.
        let _ = status(other.clone(), "/api").await;
    }

    let mut asking = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    for number in 0..CHECKS {
        ticks.tick().await;
        if number == 50 {
            streams.abort_all();
        }
        for path in ["/api", "/login"] {
            let other = other.clone();
            asking.spawn(async move { (path, status(other, path).await) });
        }
    }
    let answers = asking.join_all().await;
    let count = |path, status| {
        let counted = answers.iter().filter(|answer| **answer == (path, status));
        counted.count()
    };
    let admitted = [count("/api", 200), count("/login", 200)];
    assert_eq!(admitted, [CHECKS, LOGINS as usize], "{path}");
    assert_eq!(count("/login", 429), CHECKS - LOGINS as usize, "{path}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_released_at_once_cost_no_other_caller_a_decision() {
    is_not_noticed("/held").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_refunded_at_once_cost_no_other_caller_a_decision() {
    is_not_noticed("/queue").await;
}
