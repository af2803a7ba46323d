//! A server that is up and refuses commands.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::prelude::*;
use crate::support::try_command;

const LASTS: Duration = Duration::from_secs(6);

/// Keeps a server busy with a script meanwhile.
pub(crate) fn busy(server: &RedisServer, meanwhile: impl FnOnce()) {
    let port = server.port();
    let script = ["EVAL", "while true do end", "0"];
    let busy = std::thread::spawn(move || try_command(port, &script).expect_err("it is killed"));
    wait::until("a busy server", || server.try_command(&["PING"]).is_err());
    meanwhile();
    wait::until("the script's end", || {
        server.try_command(&["SCRIPT", "KILL"]).is_ok()
    });
    busy.join().expect("an error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_is_bridged() {
    let mut row = Row::start("refusal BUSY");
    let server = RedisServer::with(&["--lua-time-limit", "100"]);
    let (run, _server) = outage::at(&server.url(), move |outage| {
        busy(&server, || outage.hold(LASTS));
        server
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, Vec::new());
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_memory_is_bridged() {
    let mut row = Row::start("refusal OOM");
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let (run, _server) = outage::at(&server.url(), move |outage| {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        outage.hold(LASTS);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        server
    })
    .await;
    // Denials write nothing, so they may continue.
    assert_eq!(run.during(Outcome::is_allowed), 0);
    run.is_bridged(&mut row, Vec::new());
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_permission_is_bridged() {
    let mut row = Row::start("refusal NOPERM");
    let server = RedisServer::start();
    let rights = ["ACL", "SETUSER", "app", "on", ">pw", "~tt?{*", "+@all"];
    server.command(&rights);
    let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
    let (run, _server) = outage::at(&url, move |outage| {
        server.command(&["ACL", "SETUSER", "app", "-evalsha", "-eval"]);
        outage.hold(LASTS);
        server.command(&["ACL", "SETUSER", "app", "+evalsha", "+eval"]);
        server
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, Vec::new());
    row.tell(1);
}

/// The application lost its connection, and others have taken all that the server allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_clients_is_bridged() {
    let mut row = Row::start("refusal maxclients");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let (run, (_server, proxy)) = outage::at(&proxy.url(), move |outage| {
        let mut only = TcpStream::connect(("127.0.0.1", server.port())).expect("room");
        let mut say = |line: &str| {
            only.write_all(line.as_bytes()).expect("a connection");
            let mut ok = [0; 5];
            only.read_exact(&mut ok).expect("an answer");
            assert_eq!(&ok, b"+OK\r\n", "{line}");
        };
        say("CONFIG SET maxclients 1\r\n");
        proxy.reset_all();
        wait::until("the loss", || proxy.calls_by_connection().is_empty());
        outage.hold(LASTS);
        say("CONFIG SET maxclients 1000\r\n");
        (server, proxy)
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, Vec::new());
    run.connects_at_most(&mut row, &proxy, 2);
    row.tell(1);
}
