//! Rows 1 to 7 and 11: one server.

use std::thread::sleep;

use super::stage::{Fault, Scene};
use crate::prelude::*;
use crate::{outage::RESUMES, proxy::Mode, refusals, support::port::Port};

const FAULTS: [Fault; 15] = [
    ("killed", Some(RESUMES)),
    ("frozen", None),
    ("black hole", None),
    ("delay", None),
    ("drip", None),
    ("loss", None),
    ("resets", None),
    ("flushed scripts", None),
    ("busy", None),
    ("out of memory", None),
    ("not permitted", None),
    ("read-only", None),
    ("loading", Some(RESUMES)),
    ("FLUSHALL", Some(RESUMES)),
    ("junk", Some(RESUMES)),
];
const MANY_KEYS: &str = "for i = 1, 1000 do redis.call('SET', 'filled' .. i, i) end";

pub(super) struct OneServer {
    server: RedisServer,
    proxy: Proxy,
    limiter: Limiter,
}

impl OneServer {
    pub(super) async fn start() -> Self {
        let options = [
            "--user app on >pw ~tt?{* +@all",
            "--lua-time-limit 100",
            "--maxmemory-policy noeviction",
            // It loads for a second or more, and answers with an error meanwhile.
            "--key-load-delay 1000",
        ];
        let often = RedisServer::if_known("--loading-process-events-interval-bytes 1024");
        let words = options.iter().flat_map(|line| line.split(' '));
        let words: Vec<&str> = words.chain(often).collect();
        let server = RedisServer::with(&words);
        server.command(&["EVAL", MANY_KEYS, "0"]);
        let proxy = Proxy::before(server.port());
        let url = format!("redis://app:pw@127.0.0.1:{}/", proxy.port());
        let limiter = rig::limiter(rig::store(rig::CALL, &url), quota());
        rig::ready(&limiter).await;
        Self {
            server,
            proxy,
            limiter,
        }
    }

    fn network(&self, mode: Mode, hold: Duration) {
        self.proxy.set(mode);
        sleep(hold);
        self.proxy.set(Mode::Pass);
    }

    fn commands(&self, now: &[&str], hold: Duration, later: &[&str]) {
        self.server.command(now);
        sleep(hold);
        self.server.command(later);
    }
}

impl Scene for OneServer {
    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn faults(&self) -> &'static [Fault] {
        &FAULTS
    }

    fn resumes(&self) -> Duration {
        RESUMES
    }

    fn make(&mut self, fault: &str, dice: &mut Random, mended: &mut dyn FnMut()) {
        let longest_ms = if judges_time() { 2_700 } else { 500 };
        let hold = Duration::from_millis(300 + dice.below(longest_ms));
        match fault {
            "killed" => {
                self.server.kill();
                sleep(hold);
                self.server.run();
            }
            "frozen" => {
                let frozen = signals::freeze(self.server.pid());
                sleep(hold);
                drop(frozen);
            }
            "black hole" => self.network(Mode::BlackHole, hold),
            "delay" => self.network(Mode::Delay(Duration::from_millis(200)), hold),
            "drip" => {
                let every = Duration::from_millis(5);
                self.network(Mode::Drip { bytes: 4, every }, hold);
            }
            "loss" => self.network(Mode::Lossy { percent: 5 }, hold),
            "resets" => {
                for _ in 0..=dice.below(5) {
                    self.proxy.reset_all();
                    sleep(Duration::from_millis(100));
                }
            }
            "flushed scripts" => {
                for _ in 0..=dice.below(10) {
                    self.commands(&["SCRIPT", "FLUSH"], Duration::from_millis(50), &["PING"]);
                }
            }
            "busy" => refusals::busy(&self.server, || sleep(hold)),
            "out of memory" => {
                let most = |bytes| ["CONFIG", "SET", "maxmemory", bytes];
                self.commands(&most("1"), hold, &most("0"));
            }
            "not permitted" => {
                let no = ["ACL", "SETUSER", "app", "-evalsha", "-eval"];
                self.commands(&no, hold, &["ACL", "SETUSER", "app", "+evalsha", "+eval"]);
            }
            "read-only" => {
                let unused = Port::claim();
                let unused = &unused.to_string();
                let one = ["REPLICAOF", "127.0.0.1", unused];
                self.commands(&one, hold, &["REPLICAOF", "NO", "ONE"]);
            }
            "loading" => {
                self.server.command(&["EVAL", MANY_KEYS, "0"]);
                self.server.command(&["SAVE"]);
                self.server.kill();
                self.server.run();
            }
            "FLUSHALL" => drop(self.server.command(&["FLUSHALL"])),
            "junk" => {
                let key = self.limiter.storage_keys(u64::from(HOT)).remove(0);
                self.commands(&["DEL", &key], Duration::ZERO, &["SET", &key, "junk"]);
            }
            other => panic!("no such fault: {other}"),
        }
        mended();
        self.proxy.forget();
    }
}
