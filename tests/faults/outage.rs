//! What the rows have in common that take the store away and bring it back: constant load, and
//! the same judgment afterwards.

use std::{thread::sleep, time::Instant};

use crate::prelude::*;

pub(crate) const PER_S: u64 = 10;
pub(crate) const BURST: u64 = 20;
/// The number of processes in long runs.
const PROCESSES: u8 = 3;
pub(crate) fn load() -> Load {
    Load::new(or_long(150, 500), 200, or_long(128, 160))
}

/// The time in which a breaker may open.
const FINDS_OUT: Duration = Duration::from_millis(300);
/// No request waits for a store that is known to be down.
const AT_ONCE: Duration = Duration::from_millis(20);
pub(crate) const RESUMES: Duration = Duration::from_secs(3);
/// During a fault there are at least this many requests.
const ENOUGH: u64 = 100;

pub(crate) fn quota() -> TokenBucket {
    TokenBucket::per_second(PER_S).burst(BURST)
}

/// The time of load before and after a fault.
fn moment() -> Duration {
    Duration::from_millis(or_long(200, 500))
}

/// When the store was down, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) when: Window,
    /// When it was certainly down.
    down: Window,
    from: Instant,
    to: Instant,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ledger: Vec<Entry>,
    pub(crate) outage: Outage,
}

/// What a fault gets, so that it can last.
#[derive(Debug)]
pub(crate) struct Lasting {
    recorder: Recorder,
    down: Option<Window>,
}

impl Lasting {
    /// Waits for this time, or in short runs for a moment, while requests come. The fault must
    /// have been made, and must end then.
    pub(crate) fn hold(&mut self, long: Duration) {
        let from_us = self.recorder.now_us();
        sleep(or_long(Duration::from_millis(800), long));
        wait::until("requests", || {
            self.recorder.count(|entry| entry.sent_us >= from_us) >= ENOUGH
        });
        let to_us = self.recorder.now_us();
        self.down = Some(Window { from_us, to_us });
    }
}

/// The promise for each key if only the store admits.
pub(crate) const fn promise(losses: Vec<Window>) -> Promise {
    Promise {
        burst: BURST,
        per_s: PER_S as f64,
        losses,
        elsewhere: Elsewhere::Nothing,
    }
}

/// The same as [`under_load`], for a limiter of its own that already decides there.
pub(crate) async fn at<T: Send + 'static>(
    url: &str,
    fault: impl FnOnce(&mut Lasting) -> T + Send + 'static,
) -> (Run, T) {
    let limiter = rig::limiter(rig::store(rig::CALL, url), quota());
    rig::ready(&limiter).await;
    under_load(&limiter, Some(url), fault).await
}

/// Runs load for a moment. Then comes the fault, which returns when it has ended. Then load
/// runs until the store decides again. In long runs, two other
/// processes make requests, too, if there is a URL for them.
pub(crate) async fn under_load<T: Send + 'static>(
    limiter: &Limiter,
    url: Option<&str>,
    fault: impl FnOnce(&mut Lasting) -> T + Send + 'static,
) -> (Run, T) {
    let recorder = Recorder::new(0);
    let script = tokio::task::spawn_blocking({
        let (recorder, url) = (recorder.clone(), url.map(str::to_owned));
        move || {
            let start = |process| Some(App::start(process, url.as_ref()?, PER_S, BURST));
            let others: Vec<App> = (1..or_long(1, PROCESSES)).filter_map(start).collect();
            sleep(moment());
            let mut lasting = Lasting {
                recorder: recorder.clone(),
                down: None,
            };
            let (from, from_us) = (Instant::now(), recorder.now_us());
            let done = fault(&mut lasting);
            let (to, to_us) = (Instant::now(), recorder.now_us());
            load_until_resumed(&recorder, to_us, RESUMES);
            let when = Window { from_us, to_us };
            let outage = Outage {
                when,
                down: lasting.down.unwrap_or(when),
                from,
                to,
            };
            let ledgers = others.into_iter().flat_map(App::stop).collect();
            (outage, done, ledgers)
        }
    });
    let mut done = None;
    let all = async { done = Some(script.await.expect("the fault is made")) };
    load().run(limiter, &recorder, all).await;
    let (outage, done, mut ledger): (_, _, Vec<Entry>) = done.expect("the load lasts until then");
    ledger.extend(recorder.ledger());
    (Run { ledger, outage }, done)
}

/// Runs load until the store decides again, and a moment longer.
pub(crate) fn load_until_resumed(recorder: &Recorder, from_us: u64, within: Duration) {
    // Other processes have ledgers of their own, which can be read only at the end.
    if is_long() {
        sleep(within);
    }
    wait::until("decisions of the store", || {
        recorder.has(|entry| entry.sent_us >= from_us && entry.outcome.is_by_store())
    });
    sleep(moment());
}

impl Run {
    /// Judges I1, I2, I6 and I7 for a limiter that admits nothing by itself.
    pub(crate) fn judge(&self, row: &mut Row, losses: Vec<Window>) {
        self.judge_beside(row, losses, Elsewhere::Nothing);
    }

    /// The same, and that no request waited for a store that was known to be down.
    pub(crate) fn is_bridged(&self, row: &mut Row, losses: Vec<Window>) {
        self.judge(row, losses);
        self.is_open_soon(row);
    }

    /// The same for a limiter that may admit by itself.
    pub(crate) fn judge_beside(&self, row: &mut Row, losses: Vec<Window>, elsewhere: Elsewhere) {
        let promise = Promise {
            elsewhere,
            ..promise(losses)
        };
        let used = checker::admitted(&self.ledger, &promise).expect("I1");
        row.figure("of what may be admitted", format!("{used:.3}"));
        checker::nothing_broke(&self.ledger).expect("I7");
        row.answered(&self.ledger);
        let resumed = checker::resumed(&self.ledger, self.outage.when.to_us);
        let resumed = resumed
            .unwrap_or_else(|broken| panic!("{broken}: {:?}", checker::outcomes(&self.ledger)));
        row.took("resumed after", resumed, RESUMES);
    }

    /// Returns the requests that were sent while the store was down.
    fn while_down(&self) -> impl Iterator<Item = &Entry> {
        let Window { from_us, to_us } = self.outage.down;
        let is_within = move |entry: &&Entry| (from_us..to_us).contains(&entry.sent_us);
        self.ledger.iter().filter(is_within)
    }

    /// Claims that no request waits once the outage is known, except for probes, which are more
    /// frequent at first.
    pub(crate) fn is_open_soon(&self, row: &mut Row) {
        let known_us = self.outage.down.from_us + FINDS_OUT.as_micros() as u64;
        let known = self.while_down().filter(|entry| entry.sent_us >= known_us);
        let known: Vec<_> = known.cloned().collect();
        let late = checker::answered(&known).map_or(1.0, |times| times.share_above(AT_ONCE));
        let probes = or_long(0.05, 0.01);
        row.claim("waits for a store that is down", AT_ONCE, probes, late);
    }

    /// Returns how many requests were sent and answered in the outage with this outcome.
    pub(crate) fn during(&self, is: impl Fn(Outcome) -> bool) -> usize {
        let to_us = self.outage.down.to_us;
        let within = self.while_down().filter(|entry| entry.answered_us < to_us);
        within.filter(|entry| is(entry.outcome)).count()
    }

    /// Claims that each process makes at most this many calls a second to a store that is known
    /// to be down.
    pub(crate) fn sends_at_most(&self, row: &mut Row, proxy: &Proxy, per_s: usize) {
        let from = self.outage.from + FINDS_OUT;
        let second = Duration::from_secs(1);
        let most = proxy.sent().most_scripts_in(second, from, self.outage.to);
        row.figure("calls in a second of it", most);
        let late = most > per_s * processes();
        row.claim("calls", second, 0.0, f64::from(u8::from(late)));
    }

    /// Asserts how many connections each process made a second since the fault, besides the
    /// first attempts, which follow soon.
    pub(crate) fn connects_at_most(&self, row: &mut Row, proxy: &Proxy, per_s: usize) {
        let connects = proxy.connects_since(self.outage.from);
        let seconds = self.outage.from.elapsed().as_secs() as usize + 1;
        row.figure("connects", connects);
        let most = (5 + per_s * seconds) * processes();
        assert!(connects <= most, "{connects} in {seconds} s");
    }
}

fn processes() -> usize {
    usize::from(or_long(1, PROCESSES))
}
