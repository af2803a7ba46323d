//! Ports of the loopback, each for one test only.

use std::{
    fmt,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below the ports that a system assigns: no connection gets one of them while its server is
/// stopped, or about to start.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
/// The nodes of a cluster talk to each other on a second port, which is higher by this much.
const TO_BUS: u16 = 10_000;

/// A port on which no server listens yet, and that no other test of this process or another one
/// uses, until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A UDP socket of the same number, which serves no other purpose: only one test can have
    /// it.
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
