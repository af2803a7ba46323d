//! Requests that the demo sends to itself, if somebody switches them on.

mod plan;
mod sender;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::HeaderValue;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

pub(crate) use plan::Mode;
use sender::Sender;

/// The sender of the requests.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Callers of the generator's own, with keys that start with `traffic-`.
    Own,
    /// The visitor, by API key or else by address.
    Visitor(Option<HeaderValue>),
}

#[derive(Clone)]
struct Order {
    mode: Mode,
    callers: Callers,
}

/// The switch of the generator.
#[derive(Clone)]
pub(crate) struct Traffic {
    order: watch::Sender<Order>,
    sent: Arc<AtomicU64>,
    task: Arc<JoinHandle<()>>,
}

impl Traffic {
    /// Starts the generator for the demo that listens there.
    pub(crate) fn start(listening: SocketAddr, mode: Mode) -> Self {
        let order = Order {
            mode,
            callers: Callers::Own,
        };
        let (order, mut orders) = watch::channel(order);
        let sent = Arc::new(AtomicU64::new(0));
        let sender = Sender::new(reachable(listening), Arc::clone(&sent));
        let task = tokio::spawn(async move {
            loop {
                let order = orders.borrow_and_update().clone();
                tokio::select! {
                    () = sender.send(order.mode, order.callers) => {}
                    changed = orders.changed() => if changed.is_err() { return },
                }
            }
        });
        Self {
            order,
            sent,
            task: Arc::new(task),
        }
    }

    pub(crate) fn switch(&self, mode: Mode, callers: Callers) {
        self.order.send_replace(Order { mode, callers });
    }

    /// Ends it, and its requests that are under way.
    pub(crate) fn stop(&self) {
        self.switch(Mode::Off, Callers::Own);
        self.task.abort();
    }

    pub(crate) fn state(&self) -> Value {
        let order = self.order.borrow();
        json!({
            "mode": order.mode.name(),
            "as_me": order.callers != Callers::Own,
            "sent": self.sent.load(Ordering::Relaxed),
        })
    }
}

/// Returns where this process reaches the address. Nothing is sent to "all addresses".
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}
