//! One connection through the proxy.

use std::{cell::Cell, io};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Control, Cut, Mode, Shared, lock,
    resp::{Commands, Seen},
};
use crate::prelude::*;

/// The unit of time in which a lossy network keeps a connection or loses it.
const PART: Duration = Duration::from_millis(100);

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Closed,
    Reset,
}

/// Bytes in flight, and when they may arrive at the earliest.
type Pieces = mpsc::UnboundedSender<(Instant, Vec<u8>)>;

struct Link<'a> {
    shared: &'a Shared,
    id: u64,
    /// The connection swallowed bytes, so it can never be a stream again.
    is_black: Cell<bool>,
    stalled_until: Cell<Instant>,
    /// How many times flows were forgotten before this connection began.
    forgotten_before: u64,
    /// How the reply to the present call is cut off.
    cut: Cell<Option<Cut>>,
}

pub(super) async fn serve(shared: Arc<Shared>, mut client: TcpStream) {
    let link = Link {
        shared: &shared,
        id: shared.links.fetch_add(1, Ordering::Relaxed),
        stalled_until: Cell::new(Instant::now()),
        forgotten_before: shared.control.borrow().forgotten_flows,
        is_black: Cell::new(shared.control.borrow().mode == Mode::BlackHole),
        cut: Cell::new(None),
    };
    let end = link.serve(&mut client).await;
    lock(&shared.calls).remove(&link.id);
    if end == End::Reset {
        let _ = client.set_zero_linger();
    }
}

impl Link<'_> {
    async fn serve(&self, client: &mut TcpStream) -> End {
        let mut control = self.shared.control.subscribe();
        let before = control.borrow().resets;
        let reset = control.wait_for(|now| now.resets > before || now.is_over);
        if self.is_black.get() {
            let mut nowhere = tokio::io::sink();
            return tokio::select! {
                _ = tokio::io::copy(client, &mut nowhere) => End::Closed,
                _ = reset => End::Reset,
            };
        }
        let Ok(mut server) = TcpStream::connect(self.shared.server()).await else {
            return End::Reset;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (up, rising) = mpsc::unbounded_channel();
        let (down, falling) = mpsc::unbounded_channel();
        // A reader that ends lets its writer write the rest.
        let upward = async {
            let (read, written) = tokio::join!(
                self.read_client(from_client, up),
                self.write(to_server, rising)
            );
            if read == End::Reset { read } else { written }
        };
        let downward = async {
            let (read, written) = tokio::join!(
                self.read_server(from_server, down),
                self.write(to_client, falling)
            );
            if read == End::Reset { read } else { written }
        };
        tokio::select! {
            end = upward => end,
            end = downward => end,
            _ = reset => End::Reset,
            () = self.lose() => End::Reset,
        }
    }

    /// Stalls the connection at times while the network is lossy. Returns when it must be
    /// reset.
    async fn lose(&self) {
        loop {
            sleep(PART).await;
            let Mode::Lossy { percent } = self.shared.control.borrow().mode else {
                continue;
            };
            let thrown = lock(&self.shared.dice).next();
            if thrown % 100 >= percent {
                continue;
            }
            if thrown / 100 % 2 == 0 {
                return;
            }
            self.stalled_until.set(Instant::now() + PART);
        }
    }

    async fn read_client(&self, mut from: ReadHalf<'_>, to: Pieces) -> End {
        let mut commands = Commands::default();
        let mut bytes = vec![0; 65_536];
        loop {
            let Ok(length @ 1..) = from.read(&mut bytes).await else {
                return End::Closed;
            };
            let seen = commands.read(&bytes[..length]);
            let mut sent = lock(&self.shared.sent);
            seen.iter().for_each(|seen| sent.add(seen));
            drop(sent);
            let is_script = |seen: &&Seen| matches!(seen, Seen::Script { .. });
            let scripts = seen.iter().filter(is_script).count() as u64;
            if scripts > 0 {
                *lock(&self.shared.calls).entry(self.id).or_default() += scripts;
            }
            if scripts > 0 && self.cut.get().is_none() {
                self.cut.set(lock(&self.shared.next_cut).take());
            }
            if self.cut.get() == Some(Cut::BeforeRequest) {
                self.count_cut();
                return End::Reset;
            }
            self.send(&to, bytes[..length].to_vec());
        }
    }

    async fn read_server(&self, mut from: ReadHalf<'_>, to: Pieces) -> End {
        let mut bytes = vec![0; 65_536];
        loop {
            let Ok(length @ 1..) = from.read(&mut bytes).await else {
                return End::Closed;
            };
            let reply = &bytes[..length];
            let unknown = reply.windows(9).filter(|part| part == b"-NOSCRIPT");
            lock(&self.shared.sent).unknown_scripts += unknown.count() as u64;
            match self.cut.get() {
                None if self.is_reset_now() => return End::Reset,
                None => self.send(&to, reply.to_vec()),
                Some(cut) => {
                    if cut == Cut::AmidReply {
                        self.send(&to, reply[..length / 2].to_vec());
                        // Once it is closed, the writer empties it before the reset.
                        drop(to);
                        sleep(Duration::from_millis(1)).await;
                    }
                    self.count_cut();
                    return End::Reset;
                }
            }
        }
    }

    fn is_reset_now(&self) -> bool {
        match self.shared.control.borrow().mode {
            Mode::ResetReplies { one_in } => lock(&self.shared.dice).next() % one_in == 0,
            _ => false,
        }
    }

    fn count_cut(&self) {
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
    }

    fn send(&self, to: &Pieces, bytes: Vec<u8>) {
        let delay = match self.shared.control.borrow().mode {
            Mode::Delay(delay) => delay,
            _ => Duration::ZERO,
        };
        // The writer ends only with the connection.
        let _ = to.send((Instant::now() + delay, bytes));
    }

    async fn write(
        &self,
        mut to: WriteHalf<'_>,
        mut pieces: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    ) -> End {
        while let Some((at, bytes)) = pieces.recv().await {
            sleep_until(at.max(self.stalled_until.get())).await;
            if self.write_piece(&mut to, &bytes).await.is_err() {
                return End::Closed;
            }
        }
        End::Closed
    }

    async fn write_piece(&self, to: &mut WriteHalf<'_>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let Control {
                mode,
                forgotten_flows,
                ..
            } = *self.shared.control.borrow();
            let is_forgotten = forgotten_flows > self.forgotten_before;
            if mode == Mode::BlackHole || is_forgotten || self.is_black.get() {
                self.is_black.set(true);
                return Ok(());
            }
            let (now, later) = match mode {
                Mode::Drip { bytes: most, every } => {
                    sleep(every).await;
                    bytes.split_at(most.min(bytes.len()))
                }
                _ => (bytes, &[][..]),
            };
            to.write_all(now).await?;
            bytes = later;
        }
        Ok(())
    }
}
