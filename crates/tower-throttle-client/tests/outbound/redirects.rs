//! reqwest behind the layer, as the guide shows it.

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Redirect},
    routing::get,
};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{FixedWindow, Limiter, MemoryStore, Pause, Policy};
use tower_throttle_client::OutboundLayer;

/// The function of the guide.
async fn get_status(layer: OutboundLayer, url: &str) -> Result<u16, Box<dyn std::error::Error>> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let client = service_fn(move |request: http::Request<reqwest::Body>| {
        let client = client.clone();
        async move {
            let request = reqwest::Request::try_from(request)?;
            let response = client.execute(request).await?;
            Ok::<_, reqwest::Error>(http::Response::from(response))
        }
    });
    let request = http::Request::get(url).body(reqwest::Body::default())?;
    let response = layer.layer(client).oneshot(request).await?;
    Ok(response.status().as_u16())
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/")
}

#[tokio::test]
async fn a_call_is_one_request_and_only_the_partner_pauses_it() {
    let refuses =
        || async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "60")]).into_response() };
    let other = serve(Router::new().route("/", get(refuses))).await;
    let redirects = move || async move { Redirect::temporary(&other) };
    let partner = serve(Router::new().route("/", get(redirects))).await;
    let limiter = Limiter::builder()
        .store(MemoryStore::new())
        .policy(Policy::new("day", FixedWindow::per_day(2)))
        .policy(Policy::new("pauses", Pause));
    let layer = OutboundLayer::new(limiter.build().unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(get_status(layer.clone(), &partner).await.unwrap(), 307);
    }
}

/// `http::Uri` takes addresses that are not URLs.
#[tokio::test]
async fn an_address_that_is_not_a_url_is_an_error() {
    let limiter = Limiter::new(MemoryStore::new(), Policy::new("pauses", Pause));
    let layer = OutboundLayer::new(limiter).unwrap();
    for uri in [
        "/orders",
        "*",
        "partner.example:443",
        "http://[::1/",
        "http://exa%mple/",
        "http://h:99999/",
    ] {
        assert!(get_status(layer.clone(), uri).await.is_err(), "{uri}");
    }
}
