//! Pools of workers that wait for the same key.

use std::{cell::RefCell, fmt, rc::Rc};

use tokio::{
    task::LocalSet,
    time::{Instant, sleep},
};

use super::{limiters::Waiting, prelude::*};

/// A call of one of some workers.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub worker: usize,
    /// Its number among the calls, as they came.
    pub came: usize,
    pub started: Instant,
}

#[derive(Default)]
pub struct Calls {
    came: usize,
    pub started: Vec<Call>,
}

impl Calls {
    pub fn of(&self, worker: usize) -> usize {
        let started = self.started.iter();
        started.filter(|call| call.worker == worker).count()
    }

    /// Fails if a call started before one that came earlier.
    pub fn assert_in_order(&self, of: &impl fmt::Debug) {
        let (mut latest, mut until) = (0, None);
        let mut before = 0;
        for call in &self.started {
            if until != Some(call.started) {
                (before, until) = (latest, Some(call.started));
            }
            assert!(call.came >= before, "{of:?}: {call:?} after {before}");
            latest = latest.max(call.came);
        }
    }
}

/// Lets workers call again and again, each for a number of units, and as soon as its work is done.
/// Returns after fifty calls for each worker.
pub async fn pool<P, F>(
    units: &[u64],
    work: Duration,
    acquire: impl Fn(u64) -> F + Clone + 'static,
) -> Calls
where
    F: Future<Output = P> + 'static,
    P: 'static,
{
    let calls = Rc::new(RefCell::new(Calls::default()));
    let set = LocalSet::new();
    for (worker, units) in units.iter().copied().enumerate() {
        let (calls, acquire) = (calls.clone(), acquire.clone());
        set.spawn_local(async move {
            loop {
                let came = calls.borrow().came;
                calls.borrow_mut().came += 1;
                let permit = acquire(units).await;
                let started = Instant::now();
                calls.borrow_mut().started.push(Call {
                    worker,
                    came,
                    started,
                });
                sleep(work).await;
                drop(permit);
            }
        });
    }
    let enough = async {
        while calls.borrow().started.len() < 50 * units.len() {
            sleep(ms(1)).await;
        }
    };
    set.run_until(enough).await;
    calls.take()
}

pub fn of_limiter(limiter: &Limiter) -> impl Fn(u64) -> Waiting<'static> + Clone + use<> {
    let limiter = limiter.clone();
    move |units| {
        let limiter = limiter.clone();
        Box::pin(async move {
            let permit = limiter
                .acquire_n("partner", units, Duration::from_secs(3_600))
                .await?;
            assert!(permit.is_allowed(), "{:?}", permit.decision());
            Ok(permit)
        })
    }
}
