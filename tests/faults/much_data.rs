//! A server that comes back with much data.

use crate::prelude::*;

const MOST_CONNECTS: usize = 2;
const KEY: usize = 1_000;

/// A gigabyte, or in short runs a part of one. The server's pace decides how long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_much_data_is_bridged() {
    let mut row = Row::start("role LOADING much");
    let mut server = RedisServer::start();
    let keys = or_long(50_000, 1_000_000);
    let fill = "local value = string.rep('.', ARGV[2])
        for number = 1, ARGV[1] do redis.call('SET', 'filled:' .. number, value) end";
    server.command(&["EVAL", fill, "0", &keys.to_string(), &KEY.to_string()]);
    let proxy = Proxy::before(server.port());
    let (run, (server, proxy)) = outage::at(&proxy.url(), move |_| {
        server.command(&["SAVE"]);
        server.kill();
        server.run();
        (server, proxy)
    })
    .await;
    let there: usize = server.command(&["DBSIZE"]).parse().expect("a number");
    assert!(there >= keys, "it was all loaded: {there}");
    let when = run.outage.when;
    run.judge(&mut row, vec![when]);
    run.connects_at_most(&mut row, &proxy, MOST_CONNECTS);
    let away = Duration::from_micros(when.to_us - when.from_us);
    row.figure("MB", keys * KEY / 1_000_000);
    row.figure("away for", ms(away));
    row.tell(1);
}
