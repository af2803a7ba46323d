//! Many requests at once, over HTTP.

use axum::{
    Router,
    body::{Body, Bytes},
    routing::post,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::sync::Semaphore;

use super::served::listen;
use crate::prelude::*;

const LIMIT: u64 = 10;

/// A login whose right password is `open sesame`. The handlers wait for the gate.
struct Login {
    layer: RateLimitLayer,
    address: SocketAddr,
    reached: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    client: Client<HttpConnector, Body>,
}

impl Login {
    async fn serve(store: impl Store) -> Self {
        let policy = Policy::new("login", FixedWindow::per_hour(LIMIT)).shared();
        let policy = policy.settle_by(settle::status([401]));
        let (layer, _) = layer_with([policy], |builder| builder.store(store));
        let (reached, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counter, waits_for) = (Arc::clone(&reached), Arc::clone(&gate));
        let login = async move |password: String| {
            counter.fetch_add(1, Ordering::SeqCst);
            waits_for.acquire().await.expect("an open gate").forget();
            match password.as_str() {
                "open sesame" => StatusCode::OK,
                _ => StatusCode::UNAUTHORIZED,
            }
        };
        let app = Router::new()
            .route("/login", post(login))
            .layer(layer.clone());
        Self {
            layer,
            address: listen(app).await,
            reached,
            gate,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    fn send(&self, password: &'static str) -> impl Future<Output = u16> + Send + 'static {
        let request = Request::post(format!("http://{}/login", self.address));
        let request = request
            .body(Body::from(Bytes::from(password)))
            .expect("a request");
        let response = self.client.request(request);
        async { response.await.expect("a response").status().as_u16() }
    }

    async fn left(&self) -> u64 {
        let buckets = buckets_of(&self.layer, &plain());
        let decision = buckets.peek().await.expect("a decision");
        left_of(&decision)[0]
    }
}

/// A hundred guesses at once: as many reach the handler as the limit allows, and all are charged.
async fn exactly_the_limit_reaches_the_handler(store: impl Store) {
    let login = Login::serve(store).await;
    let mut guesses = JoinSet::new();
    for _ in 0..100 {
        guesses.spawn(login.send("wrong"));
    }
    // The others are denied while these are under way.
    for _ in 0..90 {
        let status = guesses.join_next().await.expect("a guess");
        assert_eq!(status.expect("an answer"), 429);
    }
    login.gate.add_permits(100);
    while let Some(status) = guesses.join_next().await {
        assert_eq!(status.expect("an answer"), 401);
    }
    assert_eq!(login.reached.load(Ordering::SeqCst), 10);
    assert_eq!(login.left().await, 0);
    assert_eq!(login.send("open sesame").await, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_memory_exactly_the_limit_reaches_the_handler() {
    exactly_the_limit_reaches_the_handler(MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_redis_exactly_the_limit_reaches_the_handler() {
    let server = RedisServer::start();
    exactly_the_limit_reaches_the_handler(redis(&server)).await;
}

fn redis(server: &RedisServer) -> RedisStore {
    store_at(&server.url())
}

/// No more of them at once than there is room for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_redis_right_passwords_are_free_and_leave_no_key() {
    let server = RedisServer::start();
    let login = Login::serve(redis(&server)).await;
    login.gate.add_permits(2_000);
    for _ in 0..300 {
        assert_eq!(login.send("open sesame").await, 200);
    }
    eventually_async("the last settlement", async || login.left().await == LIMIT).await;
    for _ in 0..20 {
        let right = (0..LIMIT).map(|_| login.send("open sesame"));
        let statuses = right.collect::<JoinSet<_>>().join_all().await;
        assert_eq!(statuses, [200; LIMIT as usize]);
        eventually_async("the settlements", async || login.left().await == LIMIT).await;
    }
    assert_eq!(login.reached.load(Ordering::SeqCst), 500);
    eventually_async("no key", async || server.keys().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_hang_up_are_charged() {
    let server = RedisServer::start();
    let login = Login::serve(redis(&server)).await;
    for reached in 1..=LIMIT as usize {
        let guess = tokio::spawn(login.send("wrong"));
        eventually_async("a call", async || {
            login.reached.load(Ordering::SeqCst) == reached
        })
        .await;
        guess.abort();
    }
    eventually_async("all settlements", async || {
        let held = server.keys().iter().any(|key| key.contains("tth"));
        !held && login.left().await == 0
    })
    .await;
    assert_eq!(login.send("wrong").await, 429);
    assert_eq!(login.reached.load(Ordering::SeqCst), LIMIT as usize);
}
