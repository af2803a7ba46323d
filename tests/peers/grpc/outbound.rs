//! The layer for clients around a channel of tonic.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tonic::{Code, client::Grpc, transport::Channel};
use tower::Layer;
use tower_throttle::{HeaderFormat, Key, Limiter, MemoryStore, Pause, Policy};
use tower_throttle_client::OutboundLayer;

use super::calls::{call, one_in_12_seconds, serve};
use crate::support::web::layer_with;

/// The server is ours, and asks for a pause of 12 s.
#[tokio::test]
async fn a_channel_pauses_for_the_retry_info_of_a_server() {
    let (layer, _) = layer_with([one_in_12_seconds()], |builder| {
        builder.headers(HeaderFormat::None) // "nothing is left" would pause the calls sooner
    });
    let (address, served) = serve(layer).await;
    let calls = Limiter::new(MemoryStore::new(), Policy::new("pauses", Pause));
    let layer = OutboundLayer::new(calls.clone()).unwrap();
    let layer = layer.max_wait(Duration::ZERO).key(|_| Key::from("partner"));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = Grpc::new(layer.layer(channel.connect_lazy()));

    let begun = Instant::now();
    assert_eq!(call(&mut client, 1).await.unwrap(), "hello");
    let refused = call(&mut client, 1).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let pause = calls.check("partner").await.unwrap().retry_after().unwrap();
    let whole = Duration::from_secs(12);
    // It ends at a whole millisecond.
    let most = whole + Duration::from_millis(1);
    let is_near = (whole.saturating_sub(begun.elapsed())..=most).contains(&pause);
    assert!(is_near, "{pause:?}");
    let paused = call(&mut client, 1).await.unwrap_err();
    let start = "calls pause, as the partner asked";
    assert!(paused.message().starts_with(start), "{paused}");
    assert_eq!(served.load(Ordering::SeqCst), 1);
}
