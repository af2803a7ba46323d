//! Sends what is planned, over HTTP.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::{Request, request};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{task::JoinSet, time::interval};

use super::{
    Callers, Mode,
    plan::{Planned, round},
};

type Body = Empty<axum::body::Bytes>;

/// What is beyond them is not sent, so that slow responses do not pile up.
const MOST_UNDER_WAY: usize = 64;

pub(super) struct Sender {
    client: Client<HttpConnector, Body>,
    to: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Sender {
    pub(super) fn new(to: SocketAddr, sent: Arc<AtomicU64>) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, to, sent }
    }

    /// Sends traffic until it is dropped, and then ends what is under way.
    pub(super) async fn send(&self, mode: Mode, callers: Callers) {
        let Some(pause) = mode.pause() else {
            return std::future::pending().await;
        };
        let mut rounds = interval(pause);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut under_way = JoinSet::new();
        for number in 0.. {
            rounds.tick().await;
            while under_way.try_join_next().is_some() {}
            for planned in round(mode, &callers, number) {
                if under_way.len() < MOST_UNDER_WAY {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    under_way.spawn(self.one(planned));
                }
            }
        }
    }

    fn one(&self, planned: Planned) -> impl Future<Output = ()> + use<> {
        let (client, to) = (self.client.clone(), self.to);
        async move {
            let uri = format!("http://{to}{}", planned.path);
            let mut request: request::Builder = Request::builder().method(planned.method).uri(uri);
            if let Some(key) = planned.key {
                request = request.header("x-api-key", key);
            }
            let Ok(request) = request.body(Body::new()) else {
                return;
            };
            // An answer that does not come is for the page and the log to show.
            if let Ok(response) = client.request(request).await {
                let mut body = pin!(response.into_body());
                while let Some(Ok(_)) = body.frame().await {}
            }
        }
    }
}
