//! An application with limits and an admin page, on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::Html,
    routing::get,
};
use tokio::{net::TcpListener, runtime::Runtime};
use tower_throttle::control::Control;
use tower_throttle_admin::{Access, Admin};

use crate::client::ask;
use crate::support::prelude::*;

/// What differs between applications.
pub(crate) struct Options {
    pub(crate) access: Access,
    pub(crate) changes: bool,
    /// The timeout of calls to Redis; `None`: a store in memory.
    pub(crate) redis: Option<Duration>,
    /// The name of the policy that denies.
    pub(crate) policy: &'static str,
    pub(crate) limiter: &'static str,
    /// The port to listen on; 0: a free one.
    pub(crate) port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::loopback_with_changes(),
            changes: true,
            redis: None,
            policy: "burst",
            limiter: "api",
            port: 0,
        }
    }
}

impl Options {
    /// A store that an outage can reach, on a server of its own.
    pub(crate) fn with_redis() -> Self {
        Self {
            redis: Some(DEADLINE),
            ..Self::default()
        }
    }

    /// The same, of which an outage shows after seconds.
    pub(crate) fn with_outages() -> Self {
        Self {
            redis: Some(Duration::from_secs(2)),
            ..Self::default()
        }
    }
}

/// Listens on a port of the loopback, while the runtime lives.
pub(crate) fn listen(runtime: &Runtime, port: u16, app: Router) -> SocketAddr {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = runtime.block_on(listening).expect("a port");
    let address = listener.local_addr().expect("its address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { axum::serve(listener, app).await });
    address
}

/// Answers each request with this page, until the process ends.
pub(crate) fn serve_page(page: &'static str) -> SocketAddr {
    let runtime = Box::leak(Box::new(Runtime::new().expect("a runtime")));
    listen(runtime, 0, Router::new().fallback(async move || Html(page)))
}

/// A running application. Each key has five requests, and one more in an hour. The admin page
/// is at `/admin`.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) redis: Option<RedisServer>,
    answers: Answers,
    _runtime: Runtime,
}

/// Method, path and status of each request, in the order of the answers.
type Answers = Arc<Mutex<Vec<(String, u16)>>>;

impl App {
    pub(crate) fn start(options: Options) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        let Some(timeout) = options.redis else {
            let store = MemoryStore::new();
            let control = store.control();
            return Self::serve(options, store, &control, None, runtime);
        };
        let redis = RedisServer::start();
        let builder = hasty().secret("s").timeout(timeout);
        let store = builder.connect(&redis.url()).expect("a store");
        let control = store.control();
        runtime.block_on(control.refresh()).expect("Redis runs");
        Self::serve(options, store, &control, Some(redis), runtime)
    }

    fn serve(
        options: Options,
        store: impl Store + Clone,
        control: &Control,
        redis: Option<RedisServer>,
        runtime: Runtime,
    ) -> Self {
        let api_key = || key::header("x-api-key");
        let burst = Policy::new(options.policy, TokenBucket::per_hour(1).burst(5));
        let strict = Policy::new("strict", FixedWindow::per_day(2)).shadow();
        let layer = RateLimitLayer::builder()
            .store(store.clone())
            .control(control.clone())
            .name(options.limiter)
            .policy(burst.key(api_key()))
            .policy(Policy::new("day", FixedWindow::per_day(1_000)).key(api_key()))
            .policy(strict.key(api_key()))
            .name_offenders(|head| {
                let name = head.headers().get("x-name")?;
                Some(String::from_utf8_lossy(name.as_bytes()).into_owned())
            })
            .build()
            .expect("a layer");
        let jobs = Limiter::builder()
            .store(store)
            .control(control.clone())
            .name("jobs")
            .policy(Policy::new("job", FixedWindow::per_day(50)))
            .build()
            .expect("a limiter");
        let mut admin = Admin::new(&layer)
            .target(&jobs)
            .control(control)
            .access(options.access);
        if options.changes {
            admin = admin.allow_changes();
        }
        let answers = Answers::default();
        let kept = Arc::clone(&answers);
        let keep = move |request: Request, next: Next| {
            let kept = Arc::clone(&kept);
            let call = format!("{} {}", request.method(), request.uri().path());
            async move {
                let response = next.run(request).await;
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push((call, response.status().as_u16()));
                response
            }
        };
        let app = Router::new()
            .route("/items/{id}", get(|| async { "an item" }))
            .layer(layer)
            .nest_service("/admin", admin.into_router())
            .layer(from_fn(keep));
        Self {
            address: listen(&runtime, options.port, app),
            redis,
            answers,
            _runtime: runtime,
        }
    }

    /// Kills the Redis server, and sends a request that meets the outage.
    pub(crate) fn lose_redis(&mut self) {
        self.redis.as_mut().expect("its server").kill();
        self.ask("ann");
    }

    /// Returns the status of each answer to such a call so far: `POST /admin/session`.
    pub(crate) fn statuses(&self, call: &str) -> Vec<u16> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let such = answers.iter().filter(|(made, _)| made == call);
        such.map(|(_, status)| *status).collect()
    }

    pub(crate) fn admin(&self) -> String {
        format!("http://{}/admin", self.address)
    }

    /// Sends a request with this API key and returns the status.
    pub(crate) fn ask(&self, api_key: &str) -> u16 {
        self.ask_with(&[("x-api-key", api_key)])
    }

    /// Sends a request with these header fields and returns the status.
    pub(crate) fn ask_with(&self, fields: &[(&str, &str)]) -> u16 {
        ask(self.address, "GET /items/1", fields, "")
    }

    /// Sends requests with this API key until two are denied.
    pub(crate) fn exhaust(&self, api_key: &str) {
        self.exhaust_with(&[("x-api-key", api_key)]);
    }

    /// Sends requests with these header fields until two are denied. Every ten minutes of the clock,
    /// the counts of the callers that are denied most are halved: one denial would be none.
    pub(crate) fn exhaust_with(&self, fields: &[(&str, &str)]) {
        while self.ask_with(fields) != 429 {}
        assert_eq!(self.ask_with(fields), 429);
    }
}
