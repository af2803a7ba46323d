//! A GraphQL API that charges what a query cost. The most that a query may cost is held while it
//! runs; the handler then says what it did cost.
//!
//! Run it, and ask for a short list, a long one, and one that is too long:
//!
//! ```text
//! cargo run --example graphql_cost
//! curl -i -d '{ users(first: 2) { name } }' http://127.0.0.1:3000/graphql
//! # HTTP/1.1 200 OK
//! # ratelimit: "points";r=997;..
//! curl -i -d '{ users(first: 40) { name friends(first: 3) { name } } }' http://127.0.0.1:3000/graphql
//! # HTTP/1.1 200 OK
//! # ratelimit: "points";r=836;..
//! curl -s -d '{ users(first: 40) { name friends(first: 30) { name } } }' http://127.0.0.1:3000/graphql
//! # {"errors":[{"message":"this query costs 1241 points, and 200 is the most"}]}
//! ```
//!
//! The first costs 3 of the 1,000 points of an hour, the second 161, and the third, which is not run,
//! one. The handler reports the cost to the limiter in the field `x-query-cost`, which clients do not
//! see: they read it in the body, and what is left in `RateLimit`.

mod command_line;

use std::{error::Error, net::SocketAddr};

use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use serde_json::{Value, json};
use tower_throttle::{FixedWindow, Policy, RateLimitLayer, settle};

/// A query that may cost more is not run.
const MOST: u64 = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // As many queries run at a time as fit if each costs the most that it may.
    let points = Policy::new("points", FixedWindow::per_hour(1_000))
        .cost(MOST)
        .settle_by(settle::header("x-query-cost"));

    let app = Router::new().route(
        "/graphql",
        post(graphql).route_layer(RateLimitLayer::new(points)),
    );

    let listener = command_line::listener().await?;
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
