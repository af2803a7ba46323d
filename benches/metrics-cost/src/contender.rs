//! The work of each row, written once for both crates.

macro_rules! contender {
    ($name:ident, $throttle:ident) => {
        mod $name {
            use std::{
                convert::Infallible,
                env,
                future::{self, Ready},
                net::{Ipv4Addr, SocketAddr},
                pin::pin,
                sync::Arc,
                task::{Context, Poll, Waker},
                time::{Duration, Instant},
            };

            use axum::{
                body::Body,
                extract::{ConnectInfo, Request},
                http::{HeaderValue, StatusCode},
                response::Response,
            };
            use tokio::{
                runtime::{Builder, Runtime},
                task::coop::consume_budget,
            };
            use tower::{Layer, Service, service_fn, util::ServiceFn};
            use $throttle::{
                Limiter, ManualClock, MemoryStore, OnStoreFailure, Policy, RateLimit,
                RateLimitLayer, RedisStore, TokenBucket, key,
            };

            use crate::Work;

            const MANY: usize = 100_000;
            /// Shares no factor with the number of callers, so each has its turn, and caches cannot
            /// predict the next one.
            const STEP: usize = 7_919;

            type Inner = ServiceFn<fn(Request) -> Ready<Result<Response, Infallible>>>;

            fn inner() -> Inner {
                service_fn(|_| future::ready(Ok(Response::default())))
            }

            pub fn prepare(row: &'static str, redis: &str) -> Work {
                let on_redis = |policies: usize, callers: usize, in_flight: usize, leases: bool| {
                    let service = OnRedis::new(row, redis, policies, ample(), leases);
                    service.round_trips(callers, in_flight)
                };
                let cached =
                    |policies| OnRedis::new(row, redis, policies, once(), false).cached_denials();
                match row {
                    "memory_1" => in_memory(1, 1, true),
                    "memory_many" => in_memory(1, MANY, true),
                    "memory_2" => in_memory(2, 1, true),
                    "memory_4" => in_memory(4, 1, true),
                    "denied_1" => in_memory(1, 1, false),
                    "denied_2" => in_memory(2, 1, false),
                    "cached_1" => cached(1),
                    "cached_2" => cached(2),
                    "check_now" => check_now(),
                    "check" => check(),
                    "redis_1" => on_redis(1, MANY, 1, false),
                    "redis_64" => on_redis(1, MANY, 64, false),
                    "redis_256" => on_redis(1, MANY, 256, false),
                    "redis_four" => on_redis(4, MANY, 64, false),
                    "redis_hot" => on_redis(1, 1, 256, false),
                    "redis_leased" => on_redis(1, 1, 256, true),
                    _ => panic!("there is no row {row}"),
                }
            }

            /// Returns a clock that stands still, to count instructions: under valgrind a request takes
            /// long.
            fn still() -> Option<Arc<ManualClock>> {
                env::var_os("STILL").map(|_| Arc::new(ManualClock::new()))
            }

            fn memory() -> MemoryStore {
                match still() {
                    Some(clock) => MemoryStore::builder().clock(clock).build(),
                    None => MemoryStore::new(),
                }
            }

            fn ample() -> TokenBucket {
                TokenBucket::per_second(1_000_000).burst(1_000_000_000)
            }

            fn once() -> TokenBucket {
                TokenBucket::per_hour(1)
            }

            fn name(number: usize) -> String {
                match number {
                    0 => "api".to_owned(),
                    _ => format!("api{number}"),
                }
            }

            fn address(number: usize) -> SocketAddr {
                let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
                SocketAddr::from((Ipv4Addr::from(first + number as u32), 50_000))
            }

            fn at_once<F: Future>(future: F) -> F::Output {
                match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(output) => output,
                    Poll::Pending => panic!("it answers at once"),
                }
            }

            /// Makes one request, as a server would.
            fn call(service: &RateLimit<Inner>, caller: SocketAddr) -> Response {
                let mut request = Request::new(Body::empty());
                request.extensions_mut().insert(ConnectInfo(caller));
                let mut service = service.clone();
                let mut context = Context::from_waker(Waker::noop());
                assert!(service.poll_ready(&mut context).is_ready(), "it is ready");
                let Ok(response) = at_once(service.call(request));
                response.map(Body::new)
            }

            fn in_memory(policies: usize, callers: usize, allows: bool) -> Work {
                let quota = if allows { ample() } else { once() };
                let policies =
                    (0..policies).map(|number| Policy::new(name(number), quota).key(key::peer()));
                let builder = RateLimitLayer::builder().store(memory());
                let builder = policies.fold(builder, |builder, policy| builder.policy(policy));
                let service = builder.build().expect("a layer").layer(inner());
                let addresses: Vec<_> = (0..callers).map(address).collect();
                for caller in &addresses {
                    assert_eq!(call(&service, *caller).status(), StatusCode::OK);
                }
                let status = match allows {
                    true => StatusCode::OK,
                    false => StatusCode::TOO_MANY_REQUESTS,
                };
                Box::new(move |requests| {
                    let mut at = 0;
                    let started = Instant::now();
                    for _ in 0..requests {
                        assert_eq!(call(&service, addresses[at]).status(), status);
                        at = (at + STEP) % addresses.len();
                    }
                    started.elapsed()
                })
            }

            fn check_now() -> Work {
                let limiter = Limiter::new(memory(), ample());
                Box::new(move |requests| {
                    let started = Instant::now();
                    for _ in 0..requests {
                        let decision = limiter.check_now("key-000000000001");
                        assert!(decision.expect("a decision").is_allowed());
                    }
                    started.elapsed()
                })
            }

            fn check() -> Work {
                let limiter = Limiter::new(memory(), ample());
                Box::new(move |requests| {
                    let started = Instant::now();
                    for _ in 0..requests {
                        let decision = at_once(limiter.check("key-000000000001"));
                        assert!(decision.expect("a decision").is_allowed());
                    }
                    started.elapsed()
                })
            }

            async fn ask(service: &RateLimit<Inner>, key: &HeaderValue) -> StatusCode {
                let mut request = Request::new(Body::empty());
                request.headers_mut().insert("x-api-key", key.clone());
                let mut service = service.clone();
                let Ok(()) = future::poll_fn(|context| service.poll_ready(context)).await;
                let Ok(response) = service.call(request).await;
                response.map(Body::new).status()
            }

            fn api_keys(callers: usize) -> Arc<[HeaderValue]> {
                let value = |number| HeaderValue::try_from(format!("key-{number:012}"));
                let values = (0..callers).map(|number| value(number).expect("a header value"));
                values.collect()
            }

            struct OnRedis {
                runtime: Runtime,
                service: RateLimit<Inner>,
            }

            impl OnRedis {
                fn new(
                    row: &str,
                    url: &str,
                    policies: usize,
                    quota: TokenBucket,
                    leases: bool,
                ) -> Self {
                    // One thread for requests, as the other core is the server's.
                    let mut builder = Builder::new_multi_thread();
                    let builder = builder.worker_threads(1).enable_all();
                    let runtime = builder.build().expect("a runtime");
                    let entered = runtime.enter();
                    // Each contender has buckets of its own.
                    let store = RedisStore::builder().prefix(stringify!($name));
                    let store = store.timeout(Duration::from_secs(5));
                    let store = match still() {
                        Some(clock) => store.clock(clock),
                        None => store,
                    };
                    let store = store.connect(url);
                    let policies = (0..policies).map(|number| {
                        let policy = Policy::new(format!("{row}_{number}"), quota);
                        let policy = policy.key(key::header("x-api-key"));
                        if leases { policy.lease() } else { policy }
                    });
                    let builder = RateLimitLayer::builder().store(store.expect("a store"));
                    // Otherwise a failure would look like speed.
                    let builder = builder.on_store_failure(OnStoreFailure::Deny);
                    let builder = policies.fold(builder, |builder, policy| builder.policy(policy));
                    let service = builder.build().expect("a layer").layer(inner());
                    drop(entered);
                    Self { runtime, service }
                }

                fn cached_denials(self) -> Work {
                    let Self { runtime, service } = self;
                    let keys = api_keys(1);
                    // The store admits the first, and denies the second.
                    runtime.block_on(async {
                        ask(&service, &keys[0]).await;
                        assert_eq!(ask(&service, &keys[0]).await, StatusCode::TOO_MANY_REQUESTS);
                    });
                    Box::new(move |requests| {
                        let (service, keys) = (service.clone(), Arc::clone(&keys));
                        let asking = runtime.spawn(async move {
                            let started = Instant::now();
                            for _ in 0..requests {
                                let status = ask(&service, &keys[0]).await;
                                assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                                consume_budget().await;
                            }
                            started.elapsed()
                        });
                        runtime.block_on(asking).expect("no panic")
                    })
                }

                fn round_trips(self, callers: usize, in_flight: usize) -> Work {
                    let Self { runtime, service } = self;
                    let keys = api_keys(callers);
                    let ask_all = move |in_flight: usize, requests: u64| {
                        let each = requests.div_ceil(in_flight as u64);
                        let started = Instant::now();
                        let workers = (0..in_flight).map(|worker| {
                            let (service, keys) = (service.clone(), Arc::clone(&keys));
                            runtime.spawn(async move {
                                let mut at = worker * keys.len() / in_flight;
                                for _ in 0..each {
                                    assert_eq!(ask(&service, &keys[at]).await, StatusCode::OK);
                                    at = (at + STEP) % keys.len();
                                    consume_budget().await;
                                }
                            })
                        });
                        let workers: Vec<_> = workers.collect();
                        for worker in workers {
                            runtime.block_on(worker).expect("no panic");
                        }
                        started.elapsed()
                    };
                    // From here on each caller has a bucket.
                    ask_all(64, 2 * callers as u64);
                    Box::new(move |requests| ask_all(in_flight, requests))
                }
            }
        }
    };
}

pub(crate) use contender;
