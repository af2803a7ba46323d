//! An axum server, its clients and Redis on the same cores: how much a limiter reduces what the
//! server can do.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Router, routing::get};
use fred::{
    interfaces::ClientLike,
    types::{Builder as ClientBuilder, config::Config},
};
use tokio::{net::TcpListener, runtime::Builder};

use super::load::{BODY, round};
use crate::{
    machine::cores,
    measured::{Measured, ROUND, in_turns},
    peers::{
        ByApiKey, Ours, Rate, axum_governor, axum_governor_api_key, in_memory_by_api_key, on_redis,
        tower_governor, trl_fred,
    },
    server::RedisServer,
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let redis = RedisServer::start(None);
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime
        .worker_threads(cores())
        .enable_all()
        .build()
        .expect("a runtime");
    let servers = runtime.block_on(async {
        let config = Config::from_url(&redis.url()).expect("a URL");
        let pool = ClientBuilder::from_config(config)
            .build_pool(4)
            .expect("a pool");
        pool.init().await.expect("connections");
        [
            serve(app()).await,
            serve(app().layer(on_redis(&redis.url(), Ours::new(Rate::Ample)))).await,
            serve(app().layer(trl_fred(pool, Rate::Ample))).await,
            serve(app().layer(in_memory_by_api_key())).await,
            serve(app().layer(tower_governor(ByApiKey, Rate::Ample))).await,
            serve(app().layer(axum_governor(axum_governor_api_key(), Rate::Ample))).await,
        ]
    });
    let ask = |server: usize| round(servers[server], ROUND);
    let [none, on_redis, trl_fred, in_memory, tower, axum] = in_turns([
        &|| ask(0),
        &|| ask(1),
        &|| ask(2),
        &|| ask(3),
        &|| ask(4),
        &|| ask(5),
    ]);
    let lost = |measured: Measured| 100.0 * (1.0 - measured.ops_per_s / none.ops_per_s);
    let mut add = |name, ours, (who, beside), most| {
        let name = format!("axum on loopback, 64 connections, {name}");
        table.add(Row::speed(&name, ours, (who, beside)));
        let name = format!("{name}: throughput lost");
        let row = Row::cost(name, "%", lost(ours), (who, lost(beside)));
        table.add(row.ours_at_most(most, "%"));
    };
    add("Redis", on_redis, ("trl-fred, pool of 4", trl_fred), 27.0);
    add("memory", in_memory, ("tower_governor", tower), 10.0);
    add("memory", in_memory, ("axum-governor", axum), 10.0);
    let name = "axum on loopback, 64 connections, memory";
    table.add(Row::speed(name, in_memory, ("no layer", none)));
}

fn app() -> Router {
    Router::new().route("/", get(|| async { BODY }))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}
