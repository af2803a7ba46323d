//! A server that works until the script comes, and then lies.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use crate::support::fake;

/// The reply to a script call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lie {
    /// The correct reply for unused buckets of one policy: allowed.
    None,
    Nil,
    ShortRow,
    /// The correct reply, and one surplus reply.
    ExtraFrame,
    WrongNonce,
    /// A header that announces half a gigabyte, and no data.
    HugeBulk,
    ListOfIntegers,
    /// An error with this text.
    Error(&'static str),
    Close,
}

#[derive(Debug, Default)]
struct Shared {
    lie: Mutex<Option<Lie>>,
    is_over: AtomicBool,
    scripts: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct Liar {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Liar {
    pub(crate) fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        *lock(&shared.lie) = Some(lie);
        let listening = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&shared, &listener)
        });
        Self {
            port,
            shared,
            listening: Some(listening),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn set(&self, lie: Lie) {
        *lock(&self.shared.lie) = Some(lie);
    }

    /// Returns how many script calls came.
    pub(crate) fn scripts(&self) -> u64 {
        self.shared.scripts.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes up the thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        for stream in lock(&self.shared.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let threads: Vec<_> = lock(&self.shared.threads).drain(..).collect();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        lock(&shared.streams).extend(stream.try_clone());
        let talking = std::thread::spawn({
            let shared = Arc::clone(shared);
            move || {
                let _ = talk(&shared, &stream);
                // A copy is kept to stop this thread, because dropping does not close the
                // connection.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        lock(&shared.threads).push(talking);
    }
}

fn talk(shared: &Shared, mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let words = read_command(&mut reader)?;
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if !is("EVALSHA") && !is("EVAL") {
            let pong = if is("PING") { "+PONG\r\n" } else { "+OK\r\n" };
            stream.write_all(pong.as_bytes())?;
            continue;
        }
        shared.scripts.fetch_add(1, Ordering::SeqCst);
        let lie = (*lock(&shared.lie)).unwrap_or(Lie::None);
        let (nonce, checks) = call(&words).ok_or(std::io::ErrorKind::InvalidData)?;
        match reply(lie, nonce, checks) {
            Some(reply) => stream.write_all(&reply)?,
            None => return Ok(()),
        }
    }
}

/// Returns the nonce, and the number of checks of one policy each.
fn call(words: &[Vec<u8>]) -> Option<(i64, usize)> {
    let keys = std::str::from_utf8(words.get(2)?).ok()?.parse().ok()?;
    let nonce = words.last()?.first_chunk()?;
    Some((f64::from_le_bytes(*nonce) as i64, keys))
}

/// Returns the reply; `None` to hang up.
fn reply(lie: Lie, nonce: i64, checks: usize) -> Option<Vec<u8>> {
    const NOW_US: f64 = 1_795_242_000_000_000.0;
    let truth = |nonce: i64| {
        let start = [nonce as f64, NOW_US];
        fake::reply(&[start.as_slice(), &[1.0, 0.0].repeat(checks)].concat())
    };
    Some(match lie {
        Lie::None => truth(nonce),
        Lie::Nil => b"*-1\r\n".to_vec(),
        Lie::ShortRow => fake::reply(&[nonce as f64, NOW_US, 1.0]),
        Lie::ExtraFrame => [truth(nonce), b":1\r\n".to_vec()].concat(),
        Lie::WrongNonce => truth(nonce + 1),
        Lie::HugeBulk => b"$536870912\r\n".to_vec(),
        Lie::ListOfIntegers => format!("*4\r\n:{nonce}\r\n:{NOW_US}\r\n:1\r\n:0\r\n").into_bytes(),
        Lie::Error(text) => format!("-{text}\r\n").into_bytes(),
        Lie::Close => return None,
    })
}

/// Reads the words of the next command.
fn read_command(reader: &mut impl BufRead) -> std::io::Result<Vec<Vec<u8>>> {
    let count = read_number(reader)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; read_number(reader)? + 2];
        reader.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    if words.is_empty() {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok(words)
}

fn read_number(reader: &mut impl BufRead) -> std::io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let digits = line.trim_end().get(1..).unwrap_or_default();
    digits
        .parse()
        .map_err(|_| std::io::ErrorKind::UnexpectedEof.into())
}
