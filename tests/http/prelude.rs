//! What most tests of the layer use: `use crate::prelude::*`.

#![allow(unused_imports, reason = "each test uses a part")]

pub(crate) use std::{
    collections::BTreeSet, convert::Infallible, future::ready, net::SocketAddr, pin::Pin,
};

pub(crate) use bytes::Bytes;
pub(crate) use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
pub(crate) use http_body_util::{BodyExt, Full};
pub(crate) use tower::service_fn;
pub(crate) use tower_throttle::{
    DenialReason, Denied, Fingerprint, HeaderFormat, Hold, Lists, OnMissingKey, Outcome,
    RateLimitLayerBuilder, RedisStore, Responder, ResponseBody, Settle,
    key::{KeyError, KeyExtractor, PeerAddr},
    settle,
};

pub(crate) use crate::common::{buckets_of, every_reason, from_peer, responding};
pub(crate) use crate::support::{
    assert_one_line, left_of,
    prelude::*,
    web::{Answer, *},
};
