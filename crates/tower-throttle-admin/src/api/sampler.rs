//! [`Sampler`]: looks at the numbers once a second, while an operator looks at the page.

use std::{
    collections::VecDeque,
    fmt,
    hash::{BuildHasher, RandomState},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tower_throttle::{control::Control, inspect::Inspect};

use super::{
    recent::Totals,
    sample::{LastLook, Sample},
};
use crate::target::Targets;

/// How long samples are kept.
const HISTORY: Duration = Duration::from_secs(300);
/// The most samples that are kept, and the most bytes of all of them. A sample takes about 400 bytes,
/// and 80 for each policy.
const MOST_SAMPLES: usize = 300;
const MOST_BYTES: usize = 8 << 20;
/// How long sampling goes on after the last look.
const LINGER: Duration = Duration::from_secs(15 * 60);
/// The most viewers at a time.
pub(super) const MOST_VIEWERS: usize = 32;
/// How many events wait for a viewer: all of a stream.
const MOST_LATE: usize = 16;
/// The pieces of an event. All viewers share the texts of samples: one that does not read keeps
/// only those from being forgotten that it waits for.
pub(super) type Event = Vec<Bytes>;
/// How long a stream lasts: a server that shuts down gracefully waits for it. A browser opens another
/// one, which goes on where this one ended, and its access is checked again.
const LONGEST_STREAM: Duration = Duration::from_secs(8);

/// Takes a sample a second for all viewers, from the first look to 15 minutes after the last one.
/// There is no task before and after.
pub(crate) struct Sampler(Arc<Inner>);

struct Inner {
    /// Tells the samples from those of other processes, and of other pages.
    id: u64,
    targets: Targets,
    control: Option<Control>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one that samples. It ends with this.
    task: JoinSet<()>,
    last_look: Option<Instant>,
    /// The texts of samples, the oldest first.
    history: VecDeque<(Instant, Bytes, Totals)>,
    /// How many samples were taken: the number of the latest one.
    taken: u64,
    history_bytes: usize,
    viewers: Vec<Viewer>,
}

struct Viewer {
    events: mpsc::Sender<Event>,
    since: Instant,
}

impl Sampler {
    pub(crate) fn new(targets: Targets, control: Option<Control>) -> Self {
        Self(Arc::new(Inner {
            // Each runs under other random keys.
            id: RandomState::new().hash_one((process::id(), SystemTime::now())),
            targets,
            control,
            state: Mutex::default(),
        }))
    }

    /// Records that an operator looks, and begins to sample unless that is under way.
    pub(crate) fn look(&self) {
        self.begin(&mut self.0.state());
    }

    /// Sums up what happened in this time before now. `None` if nobody has looked before.
    pub(crate) fn totals(&self, time: Duration) -> Option<Totals> {
        let (state, now) = (self.0.state(), Instant::now());
        let mut totals = Totals::default();
        for (at, _, sample) in state.history.iter().rev() {
            if now.duration_since(*at) > time {
                break;
            }
            totals.add(sample);
        }
        (totals.seconds > 0.0).then_some(totals)
    }

    /// Returns the events for another viewer: at first those after the one with the ID `last`, or the
    /// history if that is not known. `None` if there are too many viewers.
    pub(super) fn view(&self, last: Option<&str>) -> Option<mpsc::Receiver<Event>> {
        let mut state = self.0.state();
        state.viewers.retain(|viewer| !viewer.events.is_closed());
        if state.viewers.len() >= MOST_VIEWERS {
            return None;
        }
        self.begin(&mut state);
        let (events, received) = mpsc::channel(MOST_LATE);
        let page = self.0.id;
        let missed = last.and_then(|last| state.events_after(page, last));
        // The queue is empty.
        let _ = events.try_send(missed.unwrap_or_else(|| state.history_event(page)));
        let since = Instant::now();
        state.viewers.push(Viewer { events, since });
        Some(received)
    }

    /// Begins to sample, unless that is under way. Outside of a Tokio runtime nothing is sampled.
    fn begin(&self, state: &mut State) {
        state.last_look = Some(Instant::now());
        while state.task.try_join_next().is_some() {}
        if let (true, Ok(runtime)) = (state.task.is_empty(), Handle::try_current()) {
            state.forget();
            let work = run(Arc::downgrade(&self.0));
            state.task.spawn_on(work, &runtime);
        }
    }
}

/// Samples until nobody has looked for a while, or the page is gone.
async fn run(page: Weak<Inner>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    second.tick().await;
    let Some(first) = page.upgrade().map(|page| page.inspected()) else {
        return;
    };
    let mut last = LastLook::new(&first);
    drop(first);
    loop {
        second.tick().await;
        let Some(page) = page.upgrade() else {
            return;
        };
        let sample = last.sample(&page.inspected(), page.control.as_ref());
        if !page.state().add(page.id, sample) {
            return;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inspected(&self) -> Vec<Inspect> {
        self.targets.all()
    }
}

impl State {
    /// Keeps a sample and sends it to all viewers. Returns `false` if nobody has looked for a while:
    /// then nothing is kept, and sampling is to end.
    fn add(&mut self, page: u64, mut sample: Sample) -> bool {
        let now = Instant::now();
        let text = text(&sample);
        self.taken += 1;
        let event = event("sample", &id(page, self.taken), [text.clone()]);
        let event = Bytes::from(event.concat());
        self.viewers.retain(|viewer| {
            viewer.events.try_send(vec![event.clone()]).is_ok()
                && now.duration_since(viewer.since) < LONGEST_STREAM
        });
        if !self.viewers.is_empty() {
            self.last_look = Some(now);
        }
        if self
            .last_look
            .is_none_or(|last| now.duration_since(last) >= LINGER)
        {
            self.forget();
            // It ends by itself.
            self.task = JoinSet::new();
            return false;
        }
        let text = match sample.denials.is_empty() {
            true => text,
            false => {
                sample.denials.clear();
                self::text(&sample)
            }
        };
        self.keep(now, text, std::mem::take(&mut sample.totals));
        true
    }

    fn keep(&mut self, now: Instant, text: Bytes, totals: Totals) {
        self.history_bytes += text.len();
        self.history.push_back((now, text, totals));
        while let Some((at, oldest, _)) = self.history.front() {
            let is_kept = now.duration_since(*at) < HISTORY
                && self.history.len() <= MOST_SAMPLES
                && self.history_bytes <= MOST_BYTES;
            if is_kept {
                break;
            }
            self.history_bytes -= oldest.len();
            self.history.pop_front();
        }
    }

    fn forget(&mut self) {
        self.history = VecDeque::new();
        self.history_bytes = 0;
    }

    /// Returns the events after the one with this ID, none if that is the latest. `None` if the ID is
    /// of another page, or some of them are not kept.
    fn events_after(&self, page: u64, last: &str) -> Option<Event> {
        let (_, number) = last.split_once('-')?;
        let number = number
            .parse()
            .ok()
            .filter(|number| id(page, *number) == last)?;
        let missed = usize::try_from(self.taken.checked_sub(number)?).ok()?;
        let known = self.history.len().checked_sub(missed)?;
        let texts = self.history.iter().skip(known);
        let events = (number + 1..).zip(texts);
        let events = events
            .flat_map(|(number, (_, text, _))| event("sample", &id(page, number), [text.clone()]));
        let retry = Bytes::from(format!("{RETRY}\n\n"));
        Some([retry].into_iter().chain(events).collect())
    }

    fn history_event(&self, page: u64) -> Event {
        let mut texts = vec![Bytes::from_static(b"[")];
        for (_, text, _) in &self.history {
            if texts.len() > 1 {
                texts.push(Bytes::from_static(b","));
            }
            texts.push(text.clone());
        }
        texts.push(Bytes::from_static(b"]"));
        let name = format!("history\n{RETRY}");
        event(&name, &id(page, self.taken), texts)
    }
}

/// Tells browsers to connect again before the next sample.
const RETRY: &str = "retry: 250";

/// Returns the ID of an event.
fn id(page: u64, number: u64) -> String {
    format!("{page:016x}-{number}")
}

/// Returns the text of a sample. JSON has no line breaks unless they are asked for.
fn text(sample: &Sample) -> Bytes {
    // Its parts are texts and numbers, which all have a form in JSON.
    serde_json::to_vec(sample).unwrap_or_default().into()
}

/// Returns a server-sent event.
fn event(name: &str, id: &str, data: impl IntoIterator<Item = Bytes>) -> Event {
    let head = Bytes::from(format!("event: {name}\nid: {id}\ndata: "));
    let end = Bytes::from_static(b"\n\n");
    [head].into_iter().chain(data).chain([end]).collect()
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}
