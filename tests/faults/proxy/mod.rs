//! A proxy in front of a server, which does to connections what networks do.
//!
//! It runs on a thread and a runtime of its own, so the application's load slows it down no
//! more than it would slow down a network.

mod link;
mod resp;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::MutexGuard,
    thread::JoinHandle,
    time::Instant,
};

use tokio::{runtime::Builder, sync::watch, task::LocalSet};

use crate::prelude::*;

pub(crate) use self::resp::Sent;
use crate::support::port::Port;

/// What happens to bytes, from now on, on all connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Pass,
    /// Delays each direction.
    Delay(Duration),
    /// Passes this many bytes at a time, in each direction.
    Drip {
        bytes: usize,
        every: Duration,
    },
    /// Keeps connections, and loses what is sent. A connection that lost something stays so.
    BlackHole,
    /// Loses this percentage of the tenths of a second of each connection: half of them stall
    /// it until the next, and half of them reset it.
    Lossy {
        percent: u64,
    },
    /// Loses one of this many replies to a reset, chosen at random.
    #[allow(dead_code, reason = "a row of `figures.rs` needs it")]
    ResetReplies {
        one_in: u64,
    },
    /// Refuses new connections. Existing ones are left alone.
    Refuse,
}

/// Where the next script call is cut off by a reset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cut {
    /// The server does not receive it.
    BeforeRequest,
    /// The client receives half of the reply.
    AmidReply,
    /// The server replied, and the client does not receive it.
    AfterReply,
}

#[derive(Clone, Copy, Debug)]
struct Control {
    mode: Mode,
    /// Each connection ends when this grows.
    resets: u64,
    /// Each connection becomes a black hole when this grows.
    forgotten_flows: u64,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    control: watch::Sender<Control>,
    next_cut: Mutex<Option<Cut>>,
    cuts: AtomicU64,
    connects: Mutex<Vec<Instant>>,
    sent: Mutex<Sent>,
    /// Script calls on each existing connection.
    calls: Mutex<BTreeMap<u64, u64>>,
    links: AtomicU64,
    /// The same numbers in each run.
    dice: Mutex<Random>,
}

impl Shared {
    fn server(&self) -> SocketAddr {
        *lock(&self.server)
    }
}

#[derive(Debug)]
pub(crate) struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(crate) fn before(server_port: u16) -> Self {
        let control = Control {
            mode: Mode::Pass,
            resets: 0,
            forgotten_flows: 0,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            server: Mutex::new((Ipv4Addr::LOCALHOST, server_port).into()),
            control: watch::Sender::new(control),
            next_cut: Mutex::default(),
            cuts: AtomicU64::new(0),
            connects: Mutex::default(),
            sent: Mutex::default(),
            calls: Mutex::default(),
            links: AtomicU64::new(0),
            dice: Mutex::new(Random::from_seed(0)),
        });
        let port = Port::claim();
        let listener = listen(port.number());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let runtime = Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime");
                LocalSet::new().block_on(&runtime, serve(shared, listener));
            }
        });
        Self {
            port,
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn control(&self, change: impl FnOnce(&mut Control)) {
        self.shared.control.send_modify(change);
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.control(|control| control.mode = mode);
    }

    /// Leads all clients to another server.
    pub(crate) fn lead_to(&self, server_port: u16) {
        lock(&self.shared.server).set_port(server_port);
        self.reset_all();
    }

    /// Resets all existing connections.
    pub(crate) fn reset_all(&self) {
        self.control(|control| control.resets += 1);
    }

    /// Loses what is sent on the present connections, as a NAT that has dropped idle flows. New
    /// connections work.
    pub(crate) fn forget_flows(&self) {
        self.control(|control| control.forgotten_flows += 1);
    }

    pub(crate) fn cut_next(&self, cut: Cut) {
        *lock(&self.shared.next_cut) = Some(cut);
    }

    /// Returns how many calls were cut off.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    pub(crate) fn sent(&self) -> Sent {
        lock(&self.shared.sent).clone()
    }

    /// Returns the script calls on each existing connection that was used since the last
    /// [`forget`](Self::forget).
    pub(crate) fn calls_by_connection(&self) -> Vec<u64> {
        lock(&self.shared.calls).values().copied().collect()
    }

    /// Restarts the counts.
    pub(crate) fn forget(&self) {
        *lock(&self.shared.sent) = Sent::default();
        lock(&self.shared.connects).clear();
        let mut calls = lock(&self.shared.calls);
        calls.values_mut().for_each(|calls| *calls = 0);
    }

    /// Returns how many connections were accepted since then.
    pub(crate) fn connects_since(&self, from: Instant) -> usize {
        let connects = lock(&self.shared.connects);
        connects.iter().filter(|time| **time >= from).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control(|control| control.is_over = true);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the proxy broke");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens, also on a port that had connections just before.
fn listen(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port")
}

fn from_std(listener: TcpListener) -> tokio::net::TcpListener {
    listener.set_nonblocking(true).expect("an option");
    tokio::net::TcpListener::from_std(listener).expect("a listener")
}

async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let port = listener.local_addr().expect("an address").port();
    let mut listener = Some(from_std(listener));
    let mut control = shared.control.subscribe();
    loop {
        let now = *control.borrow_and_update();
        if now.is_over {
            return;
        }
        if now.mode == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(from_std(listen(port)));
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = control.changed() => changed.expect("the proxy's owner"),
            accepted = accepted => {
                if let Ok((client, _)) = accepted {
                    lock(&shared.connects).push(Instant::now());
                    tokio::task::spawn_local(link::serve(Arc::clone(&shared), client));
                }
            }
        }
    }
}
