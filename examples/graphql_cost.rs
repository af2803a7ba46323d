//! A GraphQL API that charges what a query cost. The most that a query may cost is held while it
//! runs; the handler then says what it did cost.
//!
//! Run it, and ask for a short and a long list:
//!
//! ```text
//! cargo run --example graphql_cost
//! curl -i -d '{ users(first: 2) { name } }' http://127.0.0.1:3000/graphql
//! curl -i -d '{ users(first: 40) { name friends(first: 3) { name } } }' http://127.0.0.1:3000/graphql
//! ```
//!
//! The first costs 3 of 1,000 points, and the second 161. The handler reports the cost to the
//! limiter in the field `x-query-cost`, which clients do not see: they read it in the body, and
//! what is left in `RateLimit`.

#![allow(clippy::print_stdout)]

use std::{env::args, error::Error, net::SocketAddr};

use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_throttle::{Policy, RateLimitLayer, TokenBucket, settle};

/// A query that may cost more is not run.
const MOST: u64 = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // As many queries run at a time as fit if each costs the most that it may.
    let points = Policy::new("points", TokenBucket::per_second(50).burst(1_000))
        .cost(MOST)
        .settle_by(settle::header("x-query-cost"));

    let app = Router::new().route(
        "/graphql",
        post(graphql).route_layer(RateLimitLayer::new(points)),
    );

    // `--listen 127.0.0.1:0` for any free port.
    let listen = args().skip_while(|word| word != "--listen").nth(1);
    let listen = listen.unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

async fn graphql(query: String) -> impl IntoResponse {
    let cost = cost_of(&query);
    let (status, body, charged) = if cost > MOST {
        let error = format!("this query costs {cost} points, and {MOST} is the most");
        // It was not run, and still it was parsed.
        (
            StatusCode::BAD_REQUEST,
            json!({ "errors": [{ "message": error }] }),
            1,
        )
    } else {
        let cost_in_body = json!({ "cost": { "actual": cost, "most": MOST } });
        let body = json!({ "data": run(&query), "extensions": cost_in_body });
        (StatusCode::OK, body, cost)
    };
    (status, [("x-query-cost", charged.to_string())], Json(body))
}

/// A point for the query, and one for each object of each list: those of a list in a list are
/// multiplied. A real server knows what it has read from its database.
fn cost_of(query: &str) -> u64 {
    let (mut cost, mut around, mut next) = (1_u64, vec![1_u64], None);
    for part in query.split_inclusive(['{', '}', ')']) {
        if let Some((_, first)) = part.split_once("first:") {
            let first = first.trim_end_matches(')').trim().parse().unwrap_or(MOST);
            let objects = around
                .last()
                .map_or(first, |lists| first.saturating_mul(*lists));
            cost = cost.saturating_add(objects);
            next = Some(objects);
        } else if part.ends_with('{') {
            let outer = around.last().copied().unwrap_or(1);
            around.push(next.take().unwrap_or(outer));
        } else if part.ends_with('}') {
            around.pop();
        }
    }
    cost
}

fn run(_query: &str) -> Value {
    json!({ "users": [{ "name": "ann" }] }) // your schema
}
