//! The layer and its service as types that applications can name.

use tower::{BoxError, util::BoxCloneSyncService};
use tower_throttle::{RateLimit, ResponseFuture};

use crate::prelude::*;

#[test]
fn types_are_what_servers_need() {
    fn is_shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    fn is_sent<T: Send + 'static>() {}
    type Inner = BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, BoxError>;
    is_shared::<RateLimitLayer>();
    is_shared::<RateLimitLayerBuilder>();
    is_shared::<Policy>();
    is_shared::<RateLimit<fn()>>();
    is_sent::<RateLimit<Inner>>();
    is_sent::<ResponseFuture<Inner, Full<Bytes>>>();
    is_sent::<ResponseBody<Full<Bytes>>>();
}

#[test]
fn the_inner_service_can_be_reached() {
    let mut service = layer_of([api()]).0.layer(7);
    *service.get_mut() += 1;
    assert_eq!((*service.get_ref(), service.into_inner()), (8, 8));
}
