//! A server that evicts keys to make room.

use std::{
    io::{BufReader, Write},
    net::{Shutdown, TcpStream},
    thread::JoinHandle,
};

use crate::prelude::*;
use crate::support::read_reply;

const PER_S: u64 = 1;
const BURST: u64 = 10;
const LOAD: Load = Load::new(500, 100, 128);
/// By then the eviction has been reported, however busy the machine is.
const HEARD_US: u64 = 5_000_000;

/// Records which key was evicted, and when that was reported.
struct Listener {
    stream: TcpStream,
    thread: JoinHandle<Vec<(String, u64)>>,
}

impl Listener {
    fn start(server: &RedisServer, recorder: &Recorder) -> Self {
        server.command(&["CONFIG", "SET", "notify-keyspace-events", "Ee"]);
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        let subscribe = b"SUBSCRIBE __keyevent@0__:evicted\r\n";
        stream.write_all(subscribe).expect("it is sent");
        let mut reader = BufReader::new(stream.try_clone().expect("the same"));
        read_reply(&mut reader).expect("a reply").expect("no error");
        let recorder = recorder.clone();
        let thread = std::thread::spawn(move || {
            let mut evicted = Vec::new();
            while let Ok(Ok(message)) = read_reply(&mut reader) {
                let key = message.lines().last().expect("a key").to_owned();
                evicted.push((key, recorder.now_us()));
            }
            evicted
        });
        Self { stream, thread }
    }

    fn stop(self) -> Vec<(String, u64)> {
        self.stream.shutdown(Shutdown::Both).expect("it stood");
        self.thread.join().expect("no panic")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_eviction_gives_a_key_one_more_burst() {
    let server = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]);
    let mut row = Row::start("eviction");
    let quota = TokenBucket::per_second(PER_S).burst(BURST);
    let limiter = rig::limiter(rig::store(rig::patience(), &server.url()), quota);
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let listener = Listener::start(&server, &recorder);
    let seconds = or_long(3, 60);
    let crowding = async {
        // The memory in use, and room for some new keys only: the rest must be evicted.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let used = server.info("used_memory");
        server.command(&["CONFIG", "SET", "maxmemory", &(used + 64_000).to_string()]);
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for number in 0..seconds * 100 {
            ticks.tick().await;
            let key = format!("another{number}");
            server.command(&["SET", &key, &"x".repeat(1_000)]);
        }
    };
    LOAD.run(&limiter, &recorder, crowding).await;

    let evicted = listener.stop();
    let keys = HOT..=LOAD.keys;
    let name = |key: u32| (limiter.storage_keys(u64::from(key)).remove(0), key);
    let names: HashMap<_, _> = keys.map(name).collect();
    let mut losses: BTreeMap<u32, Vec<Window>> = BTreeMap::new();
    for (key, at_us) in &evicted {
        let Some(key) = names.get(key) else { continue };
        let (from_us, to_us) = (at_us - HEARD_US, *at_us);
        let loss = Window { from_us, to_us };
        losses.entry(*key).or_default().push(loss);
    }
    let lost: usize = losses.values().map(Vec::len).sum();
    assert!(lost > 10, "only {lost} of ours of {}", evicted.len());

    let ledger = recorder.ledger();
    let mut most: f64 = 0.0;
    let mut by_key: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
    for entry in &ledger {
        by_key.entry(entry.key).or_default().push(entry.clone());
    }
    let promise = |losses| Promise {
        burst: BURST,
        per_s: PER_S as f64,
        losses,
        elsewhere: Elsewhere::Nothing,
    };
    for (key, entries) in &by_key {
        let lost = losses.remove(key).unwrap_or_default();
        most = most.max(checker::admitted(entries, &promise(lost)).expect("I1"));
    }
    let unaware = checker::admitted(&ledger, &promise(Vec::new()));
    assert!(unaware.is_err(), "the losses were there: {unaware:?}");
    checker::nothing_broke(&ledger).expect("I7");
    row.figure("of what may be admitted", format!("{most:.3}"));
    row.answered(&ledger);
    row.tell(lost as u64);
}
