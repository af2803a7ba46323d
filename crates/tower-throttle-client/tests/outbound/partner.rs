//! A partner that enforces a limit over all callers, in the time of Tokio.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tower_throttle::Clock;

/// What it does with a call.
pub(crate) type Answers = Box<dyn FnMut(&Seen) -> Response<String> + Send>;

/// A call, as the partner sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    /// How many calls came in the second before it, without those that were refused.
    pub(crate) in_a_second: usize,
}

#[derive(Clone)]
pub(crate) struct Partner {
    begin: Instant,
    state: Arc<Mutex<State>>,
}

struct State {
    answers: Answers,
    admitted: Vec<Duration>,
    /// When each call came, and the status of its response.
    log: Vec<(Duration, u16)>,
}

/// Tokio's time, for a store in memory.
#[derive(Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        1_767_225_600_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

/// The way to the partner, and back.
const WAY: Duration = Duration::from_millis(5);

impl Partner {
    pub(crate) fn new(answers: impl FnMut(&Seen) -> Response<String> + Send + 'static) -> Self {
        let state = State {
            answers: Box::new(answers),
            admitted: Vec::new(),
            log: Vec::new(),
        };
        Self {
            begin: Instant::now(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Admits so many calls in any second, and answers 429 to the others.
    pub(crate) fn per_second(most: usize) -> Self {
        Self::new(move |seen| match seen.in_a_second < most {
            true => answer(200, &[]),
            false => answer(429, &[("retry-after", "1")]),
        })
    }

    pub(crate) async fn call<B>(self, _: Request<B>) -> Result<Response<String>, Infallible> {
        sleep(WAY).await;
        let response = {
            let mut state = self.state.lock().unwrap();
            let at = self.begin.elapsed();
            let recent = |admitted: &&Duration| **admitted + Duration::from_secs(1) > at;
            let in_a_second = state.admitted.iter().rev().take_while(recent).count();
            let response = (state.answers)(&Seen { at, in_a_second });
            state.log.push((at, response.status().as_u16()));
            if response.status().is_success() {
                state.admitted.push(at);
            }
            response
        };
        sleep(WAY).await;
        Ok(response)
    }

    /// Returns when the calls with this status came.
    pub(crate) fn calls(&self, status: u16) -> Vec<Duration> {
        let state = self.state.lock().unwrap();
        let calls = state.log.iter().filter(|(_, of)| *of == status);
        calls.map(|(at, _)| *at).collect()
    }
}

pub(crate) fn answer(status: u16, fields: &[(&str, &str)]) -> Response<String> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(String::new()).unwrap()
}
