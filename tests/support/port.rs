//! Ports of the loopback, each of one test only.

use std::{
    fmt,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below those that a system gives to whoever asks for any: nobody connects from
/// one while a server that has it is stopped, or is about to start.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
/// The nodes of a cluster talk to each other on a second port, so much higher.
const TO_BUS: u16 = 10_000;

/// Nobody listens there yet, and no other test is given it, of this process or
/// another, until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Of the same number, which is of no other use: only one can have it.
    _claim: UdpSocket,
}

impl Port {
    pub fn claim() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = process::id().wrapping_mul(97);
        let ports = (0..COUNT).map(|_| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            FIRST + (start.wrapping_add(next) % u32::from(COUNT)) as u16
        });
        let mut claims = ports.filter_map(|number| {
            let _claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            [number, number + TO_BUS]
                .iter()
                .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
                .then_some(Self { number, _claim })
        });
        claims.next().expect("a free port")
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
