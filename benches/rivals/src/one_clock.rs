//! A layer around governor that makes one clock and keeps it. Its responses are those of
//! tower_governor, which makes a new clock for each denial.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{extract::Request, http::HeaderMap, response::Response};
use governor::{
    RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::StateInformationMiddleware,
    state::keyed::DefaultKeyedStateStore,
};
use tower::{Layer, Service};
use tower_governor::{
    GovernorError,
    key_extractor::{KeyExtractor, PeerIpKeyExtractor},
};

use crate::peers::{Inner, Rate};

type Limiter =
    RateLimiter<IpAddr, DefaultKeyedStateStore<IpAddr>, DefaultClock, StateInformationMiddleware>;

/// Keyed by the peer's address.
#[derive(Clone)]
pub struct OneClockLayer(Arc<Limiter>);

impl OneClockLayer {
    pub fn new(rate: Rate) -> Self {
        let limiter = RateLimiter::keyed(rate.governor());
        Self(Arc::new(limiter.with_middleware()))
    }
}

impl Layer<Inner> for OneClockLayer {
    type Service = OneClock;

    fn layer(&self, inner: Inner) -> OneClock {
        OneClock {
            inner,
            limiter: Arc::clone(&self.0),
        }
    }
}

#[derive(Clone)]
pub struct OneClock {
    inner: Inner,
    limiter: Arc<Limiter>,
}

impl Service<Request> for OneClock {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let address = PeerIpKeyExtractor.extract(&request).expect("an address");
        let denial = match self.limiter.check_key(&address) {
            Ok(state) => {
                let Ok(mut response) = self.inner.call(request).into_inner();
                let (limit, remaining) = (state.quota(), state.remaining_burst_capacity());
                let headers = response.headers_mut();
                headers.insert("x-ratelimit-limit", limit.burst_size().get().into());
                headers.insert("x-ratelimit-remaining", remaining.into());
                return ready(Ok(response));
            }
            Err(denial) => denial,
        };
        let wait_time = denial.wait_time_from(self.limiter.clock().now()).as_secs();
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-after", wait_time.into());
        headers.insert("retry-after", wait_time.into());
        let limit = denial.quota().burst_size().get();
        headers.insert("x-ratelimit-limit", limit.into());
        headers.insert("x-ratelimit-remaining", 0.into());
        let error = GovernorError::TooManyRequests {
            wait_time,
            headers: Some(headers),
        };
        ready(Ok(error.into()))
    }
}
