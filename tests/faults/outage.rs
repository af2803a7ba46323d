//! What the rows have in common that take the store away and bring it back: constant load, and
//! the same judgment afterwards.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use tower_throttle::{Limiter, TokenBucket};

use crate::{
    app::App,
    checker::{self, Elsewhere, Latency, Promise, Window},
    figures::{is_long, ms, or_long},
    ledger::{Entry, Outcome, Recorder},
    load::Load,
    proxy::Proxy,
    rig,
};

pub(crate) const PER_S: u64 = 10;
pub(crate) const BURST: u64 = 20;
/// The number of processes in long runs.
const PROCESSES: u8 = 3;
pub(crate) const LOAD: Load = Load {
    per_s: 500,
    keys: 200,
    hot_per_s: 160,
    leaving: None,
};

/// The time in which a breaker may open.
const FINDS_OUT: Duration = Duration::from_millis(300);
/// No request waits for a store that is known to be down.
const AT_ONCE: Duration = Duration::from_millis(20);
/// The time of load before and after a fault.
const MOMENT: Duration = Duration::from_millis(500);
pub(crate) const RESUMES: Duration = Duration::from_secs(3);

pub(crate) fn quota() -> TokenBucket {
    TokenBucket::per_second(PER_S).burst(BURST)
}

/// I2, with the bound of the matrix. Short runs allow more, because the machine may be busy.
fn in_time() -> Latency {
    let busy = Latency {
        p999: Duration::from_millis(800),
        most: Duration::from_millis(1_500),
    };
    or_long(busy, rig::IN_TIME)
}

/// When the store was down, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) when: Window,
    /// From then on it may have been up again.
    mended_us: u64,
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
    mended_us: Option<u64>,
}

impl Lasting {
    /// Waits for this time, or in short runs for a moment. The fault must end then.
    pub(crate) fn hold(&mut self, long: Duration) {
        sleep(or_long(Duration::from_millis(1_500), long));
        self.mended_us = Some(self.recorder.now_us());
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
/// runs until the store decides again, for as long as that may take. In long runs, two other
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
            sleep(MOMENT);
            let mut lasting = Lasting {
                recorder: recorder.clone(),
                mended_us: None,
            };
            let (from, from_us) = (Instant::now(), recorder.now_us());
            let done = fault(&mut lasting);
            let (to, to_us) = (Instant::now(), recorder.now_us());
            load_until_resumed(&recorder, to_us, RESUMES);
            let outage = Outage {
                when: Window { from_us, to_us },
                mended_us: lasting.mended_us.unwrap_or(to_us),
                from,
                to,
            };
            let ledgers = others.into_iter().flat_map(App::stop).collect();
            (outage, done, ledgers)
        }
    });
    let mut done = None;
    let all = async { done = Some(script.await.expect("the fault is made")) };
    LOAD.run(limiter, &recorder, all).await;
    let (outage, done, mut ledger): (_, _, Vec<Entry>) = done.expect("the load lasts until then");
    ledger.extend(recorder.ledger());
    (Run { ledger, outage }, done)
}

/// Runs load for a moment longer. The judge finds out whether the store resumed.
pub(crate) fn load_until_resumed(recorder: &Recorder, from_us: u64, within: Duration) {
    let until = Instant::now() + within;
    let resumed = |entry: &Entry| entry.sent_us >= from_us && entry.outcome.is_by_store();
    // Other processes have ledgers of their own, which can be read only at the end.
    while Instant::now() < until && (is_long() || !recorder.has(resumed)) {
        sleep(Duration::from_millis(10));
    }
    sleep(MOMENT);
}

impl Run {
    /// Judges I1, I2, I6 and I7 for a limiter that admits nothing by itself. Returns what was
    /// found.
    pub(crate) fn judge(&self, losses: Vec<Window>) -> Vec<(&'static str, String)> {
        self.judge_beside(losses, Elsewhere::Nothing)
    }

    /// The same for a limiter that may admit by itself.
    pub(crate) fn judge_beside(
        &self,
        losses: Vec<Window>,
        elsewhere: Elsewhere,
    ) -> Vec<(&'static str, String)> {
        let promise = Promise {
            elsewhere,
            ..promise(losses)
        };
        let used = checker::admitted(&self.ledger, &promise).expect("I1");
        checker::nothing_broke(&self.ledger).expect("I7");
        let outcomes = checker::outcomes(&self.ledger);
        let latency = checker::answered(&self.ledger, in_time());
        let latency = latency
            .unwrap_or_else(|broken| panic!("{broken}: {outcomes:?}, {:?}", self.outage.when));
        let resumed = checker::resumed(&self.ledger, self.outage.when.to_us, RESUMES);
        let resumed = resumed.unwrap_or_else(|broken| panic!("{broken}: {outcomes:?}"));
        vec![
            ("of what may be admitted", format!("{used:.3}")),
            ("p99.9", ms(latency.p999)),
            ("longest", ms(latency.most)),
            ("resumed after", ms(resumed)),
        ]
    }

    /// Returns the requests that were sent while the store was known to be down.
    fn while_known(&self) -> impl Iterator<Item = &Entry> {
        let until_us = self.outage.mended_us;
        let from_us = self.outage.when.from_us + FINDS_OUT.as_micros() as u64;
        let is_within = move |entry: &&Entry| (from_us..until_us).contains(&entry.sent_us);
        self.ledger.iter().filter(is_within)
    }

    /// Asserts that no request waits once the outage is known, except for probes: one in a
    /// hundred, or on a busy machine one in five.
    pub(crate) fn is_open_soon(&self) {
        let (mut all, mut late) = (0, 0);
        for entry in self.while_known() {
            all += 1;
            late += u64::from(entry.took_us() > AT_ONCE.as_micros() as u64);
        }
        assert!(all > 100, "there was load: {all}");
        assert!(
            late * or_long(5, 100) <= all,
            "{late} of {all} waited for a store that is away"
        );
    }

    /// Returns how many requests were sent and answered in the outage with this outcome.
    pub(crate) fn during(&self, is: impl Fn(Outcome) -> bool) -> usize {
        let mended_us = self.outage.mended_us;
        let within = self
            .while_known()
            .filter(|entry| entry.answered_us < mended_us);
        within.filter(|entry| is(entry.outcome)).count()
    }

    /// Asserts that each process makes at most this many calls a second to a store that is
    /// known to be down.
    pub(crate) fn sends_at_most(&self, proxy: &Proxy, per_s: usize) -> usize {
        let from = self.outage.from + FINDS_OUT;
        let second = Duration::from_secs(1);
        let most = proxy.sent().most_scripts_in(second, from, self.outage.to);
        let processes = usize::from(or_long(1, PROCESSES));
        assert!(
            most <= per_s * processes,
            "{most} calls in a second of the outage"
        );
        most
    }

    /// Asserts how many connections each process made a second since the fault, besides the
    /// first attempt, which follows at once.
    pub(crate) fn connects_at_most(&self, proxy: &Proxy, per_s: usize) -> usize {
        let connects = proxy.connects_since(self.outage.from);
        let seconds = self.outage.from.elapsed().as_secs() as usize + 1;
        let processes = usize::from(or_long(1, PROCESSES));
        assert!(
            connects <= (1 + per_s * seconds) * processes,
            "{connects} in {seconds} s"
        );
        connects
    }
}
