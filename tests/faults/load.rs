//! Requests at a steady rate, whatever the outcome of earlier ones.

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::prelude::*;

/// The key of many concurrent requests.
pub(crate) const HOT: u32 = 0;
const HOT_TASKS: u64 = 64;
/// How finely requests are distributed over time.
const TICK: Duration = Duration::from_millis(1);
/// A request that is not answered by then never will be.
pub(crate) const HUNG: Duration = Duration::from_secs(60);

/// How many requests come, and for which keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests in each second, over all keys but the hot one.
    pub(crate) per_s: u64,
    pub(crate) keys: u32,
    /// Requests for the hot key in each second, from 64 tasks.
    pub(crate) hot_per_s: u64,
    /// Of a hundred callers, this many leave, after this time.
    pub(crate) leaving: Option<(u64, Duration)>,
}

impl Load {
    /// The matrix asks for 2,000 a second from three processes.
    pub(crate) const OF_ONE_IN_THREE: Self = Self::new(500, 20_000, 160);

    pub(crate) const fn new(per_s: u64, keys: u32, hot_per_s: u64) -> Self {
        Self {
            per_s,
            keys,
            hot_per_s,
            leaving: None,
        }
    }

    /// Makes requests until `over`, and waits for the answers.
    pub(crate) async fn run(self, limiter: &Limiter, recorder: &Recorder, over: impl Future) {
        let mut asking = JoinSet::new();
        let started = Instant::now();
        let (mut spread, mut hot) = (0, 0);
        let mut ticks = interval(TICK);
        // Late requests are caught up with, so the rate holds.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                _ = &mut over => break,
                _ = ticks.tick() => {}
            }
            let passed = started.elapsed().as_secs_f64();
            while (spread as f64) < passed * self.per_s as f64 {
                // A prime step: each key has one request before any has a second.
                let key = 1 + (spread * 7_919 % u64::from(self.keys)) as u32;
                self.ask(&mut asking, limiter, recorder, key, spread);
                spread += 1;
            }
            while (hot as f64) < passed * self.hot_per_s as f64 {
                for _ in 0..HOT_TASKS {
                    self.ask(&mut asking, limiter, recorder, HOT, hot);
                    hot += 1;
                }
            }
            while asking.try_join_next().is_some() {}
        }
        let rest = async { while asking.join_next().await.is_some() {} };
        if timeout(HUNG, rest).await.is_err() {
            // Each request that is left is recorded as unanswered.
            asking.shutdown().await;
        }
    }

    pub(crate) async fn run_for(self, limiter: &Limiter, recorder: &Recorder, time: Duration) {
        self.run(limiter, recorder, tokio::time::sleep(time)).await;
    }

    fn ask(
        self,
        asking: &mut JoinSet<()>,
        limiter: &Limiter,
        recorder: &Recorder,
        key: u32,
        number: u64,
    ) {
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        let patience = self.leaving.filter(|(percent, _)| number % 100 < *percent);
        asking.spawn(async move {
            let pending = recorder.open(key, 1);
            let check = limiter.check(u64::from(key));
            match patience {
                None => pending.answered(&check.await),
                Some((_, patience)) => match timeout(patience, check).await {
                    Ok(answer) => pending.answered(&answer),
                    Err(_) => pending.hung_up(),
                },
            }
        });
    }
}
