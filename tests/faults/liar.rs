//! A server that works until the script comes, and then lies.

use crate::prelude::*;
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

#[derive(Debug)]
struct Shared {
    lie: Mutex<Lie>,
    scripts: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Liar {
    port: u16,
    shared: Arc<Shared>,
}

impl Liar {
    pub(crate) fn start(lie: Lie) -> Self {
        let shared = Arc::new(Shared {
            lie: Mutex::new(lie),
            scripts: AtomicU64::new(0),
        });
        let talking = Arc::clone(&shared);
        let port = fake::talk(move |_, words| talking.answer(words));
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn set(&self, lie: Lie) {
        *self.shared.lie.lock().expect("no panic") = lie;
    }

    /// Returns how many script calls came.
    pub(crate) fn scripts(&self) -> u64 {
        self.shared.scripts.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn answer(&self, words: &[Vec<u8>]) -> Option<Vec<u8>> {
        if !fake::is_script(words) {
            let is_ping = words[0].eq_ignore_ascii_case(b"PING");
            let answer = if is_ping { "+PONG\r\n" } else { "+OK\r\n" };
            return Some(answer.into());
        }
        self.scripts.fetch_add(1, Ordering::SeqCst);
        let lie = *self.lie.lock().expect("no panic");
        // One key for each check of one policy.
        let checks = String::from_utf8_lossy(&words[2]).parse();
        reply(lie, fake::nonce(words) as i64, checks.expect("a number"))
    }
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
