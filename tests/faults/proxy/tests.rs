//! The proxy, with a server behind it and a client in front.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::*;
use crate::support::RedisServer;

fn connect(proxy: &Proxy) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok(stream)
}

fn ping(mut stream: &TcpStream) -> std::io::Result<Duration> {
    let asked = Instant::now();
    stream.write_all(b"PING\r\n")?;
    let mut pong = [0; 7];
    stream.read_exact(&mut pong)?;
    assert_eq!(&pong, b"+PONG\r\n");
    Ok(asked.elapsed())
}

#[test]
fn the_proxy_applies_and_removes_faults() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let stream = connect(&proxy).expect("a connection");
    ping(&stream).expect("it passes");

    proxy.set(Mode::Delay(Duration::from_millis(20)));
    let took = ping(&stream).expect("late");
    assert!(took >= Duration::from_millis(40), "{took:?}");
    let every = Duration::from_millis(5);
    proxy.set(Mode::Drip { bytes: 1, every });
    let took = ping(&stream).expect("drop by drop");
    assert!(took >= every * 13, "{took:?}");

    proxy.set(Mode::Refuse);
    crate::wait::until("a refusal", || connect(&proxy).is_err());
    proxy.set(Mode::BlackHole);
    crate::wait::until("a connection", || connect(&proxy).is_ok());
    ping(&stream).expect_err("swallowed");
    proxy.set(Mode::Pass);
    ping(&stream).expect_err("it stays black");
    ping(&connect(&proxy).expect("a connection")).expect("a new one is well");

    let before = Instant::now();
    let other = connect(&proxy).expect("a connection");
    ping(&other).expect("well");
    assert_eq!(proxy.connects_since(before), 1);
    proxy.reset_all();
    let error = ping(&other).expect_err("reset");
    let kind = error.kind();
    assert!(
        kind == std::io::ErrorKind::ConnectionReset || kind == std::io::ErrorKind::BrokenPipe,
        "{error}"
    );
}

/// If two servers shared one port, the second would be absent without being noticed.
#[test]
fn each_port_belongs_to_one_test() {
    let claims = || (0..300).map(|_| Port::claim()).collect::<Vec<_>>();
    let ports: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(claims)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|ports| ports.expect("ports")).collect()
    });
    let numbers: std::collections::HashSet<_> = ports.iter().map(Port::number).collect();
    assert_eq!(numbers.len(), ports.len());
    for number in numbers {
        // As another process would.
        let again = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, number));
        assert!(again.is_err(), "{number}");
    }
}
