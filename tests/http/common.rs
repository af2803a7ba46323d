//! What several files of these tests share.

use tower_throttle::Buckets;

use crate::prelude::*;

/// Returns a layer for each reason, and the cost in the field `api` with which it denies. Its
/// only policy is `api`.
pub(crate) fn every_reason(
    set: impl Fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> [(DenialReason, RateLimitLayer, u64); 6] {
    let layer = |policy: Policy| {
        let deny = OnStoreFailure::Deny;
        layer_with([policy], |builder| set(builder.on_store_failure(deny))).0
    };
    let unshared = || Policy::new("api", TokenBucket::per_minute(100));
    let full = layer(api());
    ask(&full, get([("api", 100)]));
    let by_header = unshared().key(key::header("x-api-key"));
    let lists = Lists::new().deny_keys("api", ["stolen"]).expect("lists");
    let everybody_stole = unshared().key(|_: &RequestHead<'_>| Some(Key::from("stolen")));
    let (listed, _) = layer_with([everybody_stole], |builder| set(builder).lists(lists));
    [
        (DenialReason::QuotaExceeded, full, 1),
        (DenialReason::CostImpossible, layer(api()), 250),
        (DenialReason::KeyMissing, layer(by_header), 1),
        (DenialReason::Listed, listed, 1),
        (DenialReason::StoreFailed, layer(api()).store(Down), 1),
        (DenialReason::Misconfigured, layer(unshared()), 1),
    ]
}

/// A GET of this peer with these header fields.
pub(crate) fn from_peer<V: ToString, const N: usize>(
    peer: &str,
    fields: [(&str, V); N],
) -> Request<Full<Bytes>> {
    let mut request = get(fields);
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4711);
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// Returns the buckets of a request's caller.
#[track_caller]
pub(crate) fn buckets_of<B>(layer: &RateLimitLayer, request: &Request<B>) -> Buckets {
    layer.buckets(&RequestHead::from(request)).expect("keys")
}

/// Sends a request through a layer to a service that answers once, with this response.
#[track_caller]
pub(crate) fn responding<B: http_body::Body>(
    layer: &RateLimitLayer,
    request: Request<Full<Bytes>>,
    response: Response<B>,
) -> Response<ResponseBody<B>> {
    let response = Mutex::new(Some(response));
    let inner = service_fn(|_| {
        let response = response.lock().unwrap().take();
        ready(Ok::<_, Infallible>(response.expect("one call")))
    });
    at_once(layer.layer(inner).call(request)).expect("a response")
}
