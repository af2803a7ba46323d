//! Requests to Redis, through a limiter or without one.

use std::{convert::Infallible, fmt::Debug, sync::Arc};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderValue, StatusCode},
    response::Response,
};
use fred::{
    clients::Client,
    interfaces::{ClientLike, KeysInterface},
    types::{ClusterHash, CustomCommand, Value, scripts::Script},
};
use tower::{Service, ServiceExt};

use crate::callers::{API_KEY, api_key};

pub trait Ask: Clone + Send + Sync + 'static {
    fn ask(&self, caller: usize) -> impl Future<Output = Answered> + Send;
}

/// An error if the answer is not the expected one, because then the measurement would be of
/// something else.
pub type Answered = Result<(), String>;

pub fn expect<T: PartialEq + Debug>(answer: T, expected: T) -> Answered {
    if answer == expected {
        return Ok(());
    }
    Err(format!("{answer:?} in place of {expected:?}"))
}

/// HTTP requests, as a server would send them.
#[derive(Clone)]
pub struct Requests<S> {
    pub service: S,
    pub api_keys: Arc<[HeaderValue]>,
    /// The expected status: a store that fails would answer with another one.
    pub status: StatusCode,
}

impl<S, B> Ask for Requests<S>
where
    S: Service<Request, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn ask(&self, caller: usize) -> Answered {
        let mut request = Request::new(Body::empty());
        let api_key = self.api_keys[caller].clone();
        request.headers_mut().insert(API_KEY, api_key);
        let Ok(response) = self.service.clone().oneshot(request).await;
        let response = response.map(Body::new);
        expect(response.status(), self.status)
    }
}

/// A bare GET, without a decision.
#[derive(Clone)]
pub struct Get(pub Client);

impl Ask for Get {
    async fn ask(&self, caller: usize) -> Answered {
        let reply: Result<Option<i64>, _> = self.0.get(api_key(caller)).await;
        reply.map(drop).map_err(|error| error.to_string())
    }
}

/// A bucket, in the numbers of the two below.
#[derive(Clone, Copy)]
pub struct Bucket {
    pub capacity: i64,
    /// This many tokens flow in ...
    pub count: i64,
    /// ... in this many seconds.
    pub seconds: i64,
}

/// redis-cell, if the server has loaded it.
#[derive(Clone)]
pub struct RedisCell {
    pub client: Client,
    pub bucket: Bucket,
}

impl Ask for RedisCell {
    async fn ask(&self, caller: usize) -> Answered {
        let command = CustomCommand::new_static("CL.THROTTLE", ClusterHash::FirstKey, false);
        let Bucket {
            capacity,
            count,
            seconds,
        } = self.bucket;
        let key = format!("cell-{}", api_key(caller));
        // It counts one more than its burst.
        let numbers = [capacity - 1, count, seconds, 1].map(Value::from);
        let words: Vec<_> = [Value::from(key)].into_iter().chain(numbers).collect();
        let reply: Result<Vec<i64>, _> = self.client.custom(command, words).await;
        // The first integer is whether it denies.
        expect(reply.map(|reply| reply[0]), Ok(0))
    }
}

/// A script on two keys.
#[derive(Clone)]
pub struct TwoKeys {
    client: Client,
    bucket: Bucket,
    script: Script,
}

impl TwoKeys {
    pub async fn new(client: Client, bucket: Bucket) -> Self {
        let script = Script::from_lua(include_str!("two_keys.lua"));
        script.load(&client).await.expect("a script");
        Self {
            client,
            bucket,
            script,
        }
    }
}

impl Ask for TwoKeys {
    async fn ask(&self, caller: usize) -> Answered {
        let key = api_key(caller);
        let keys = vec![format!("{{{key}}}.tokens"), format!("{{{key}}}.counted")];
        let numbers = vec![
            self.bucket.count,
            self.bucket.seconds,
            self.bucket.capacity,
            1,
        ];
        let reply = self.script.evalsha(&self.client, keys, numbers).await;
        // The first integer is whether it admits.
        expect(reply.map(|reply: Vec<i64>| reply[0]), Ok(1))
    }
}
