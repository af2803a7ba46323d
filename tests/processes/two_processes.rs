//! Exact counts under concurrency: 64 racing tasks over two processes on one Redis.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::{runtime::Runtime, sync::Barrier};
use tower_throttle::{PolicyDecision, RedisStore};

use crate::{
    other::Other,
    support::{denying_limiter, prelude::*},
};

const TASKS: usize = 32;
const CALLS_PER_TASK: usize = 10;
/// How many units can pass in each race: far fewer than are asked for.
const CAPACITY: u64 = 100;
const SMALLER_CAPACITY: u64 = 37;
const MOST_DEBT: u64 = 50;

/// What each task repeats. The units that it moves are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Check(u64),
    /// Takes as many as there are, up to this many.
    UpTo(u64),
    /// Also charges units that are not there.
    Debit(u64),
    /// Takes two and refunds one.
    TwoAndBack,
    /// Holds its permits until the race is over.
    Hold,
}

struct Race {
    name: String,
    policies: Vec<Policy>,
    work: Work,
    /// The units that both processes together must move, if that does not depend on the order
    /// of arrival.
    moved: Option<u64>,
}

impl Race {
    fn limiter(&self, store: &RedisStore) -> Limiter {
        denying_limiter(store.clone(), self.policies.clone())
    }
}

/// Every algorithm whose units are used up. Nothing comes back during the test: one token of the
/// first bucket does in 14 minutes.
fn algorithms(capacity: u64, window: Duration) -> Vec<Policy> {
    let bucket = || TokenBucket::new(capacity, window);
    let leaky = || LeakyBucket::new(capacity, window);
    let fixed = || FixedWindow::new(capacity, window);
    vec![
        Policy::new("token bucket", bucket()),
        Policy::new("leaky meter", leaky()),
        Policy::new("leaky queue", leaky().queue(capacity - 1)),
        Policy::new("interval bucket", bucket().refill_at_once()),
        Policy::new("by hand", TokenBucket::without_refill(capacity)),
        Policy::new("fixed window", fixed()),
        Policy::new("aligned window", fixed().aligned()),
        Policy::new("sliding window", SlidingWindow::new(capacity, window)),
        Policy::new("sliding log", SlidingLog::new(capacity, window)),
    ]
}

fn all_races(window: Duration) -> Vec<Race> {
    let mut races = Vec::new();
    let works = [
        (Work::Check(1), Some(CAPACITY)),
        (Work::Check(3), Some(CAPACITY / 3 * 3)),
        (Work::UpTo(7), Some(CAPACITY)),
        (Work::Debit(3), Some(CAPACITY + MOST_DEBT)),
        (Work::TwoAndBack, None),
    ];
    for (number, policy) in algorithms(CAPACITY, window).into_iter().enumerate() {
        for (work, moved) in works {
            races.push(Race {
                name: format!("algorithm {number}, {work:?}"),
                policies: vec![policy.clone().max_debt(MOST_DEBT)],
                work,
                moved,
            });
        }
    }
    races.push(Race {
        name: "concurrency, Hold".to_owned(),
        policies: vec![Policy::new("at a time", Concurrency::new(CAPACITY))],
        work: Work::Hold,
        moved: Some(CAPACITY),
    });

    // All or none, whichever policy has the smallest capacity.
    let with_smallest = |smallest: usize, capacity| {
        let mut policies = algorithms(CAPACITY, window);
        policies[smallest] = algorithms(capacity, window).swap_remove(smallest);
        policies.push(Policy::new("everyone", TokenBucket::per_day(CAPACITY)).shared());
        policies
    };
    for smallest in 0..algorithms(CAPACITY, window).len() {
        for work in [Work::Check(1), Work::UpTo(7), Work::TwoAndBack] {
            races.push(Race {
                name: format!("all or none, least in algorithm {smallest}, {work:?}"),
                policies: with_smallest(smallest, SMALLER_CAPACITY),
                work,
                moved: (work != Work::TwoAndBack).then_some(SMALLER_CAPACITY),
            });
        }
    }
    for (at_a_time, others) in [(SMALLER_CAPACITY, CAPACITY), (CAPACITY, SMALLER_CAPACITY)] {
        let mut policies = algorithms(others, window);
        // Without waiting, only the first caller gets a turn in a queue.
        drop(policies.remove(2));
        policies.push(Policy::new("at a time", Concurrency::new(at_a_time)));
        races.push(Race {
            name: format!("all or none, {at_a_time} at a time, else {others}, Hold"),
            policies,
            work: Work::Hold,
            moved: Some(SMALLER_CAPACITY),
        });
    }
    races
}

/// About a day, with much time left by the clock: some windows end by the clock, and none may
/// end during the test.
fn long_window() -> Duration {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = since_epoch.expect("a clock").as_secs();
    let lengths = [24, 25, 23].map(|hours| hours * 3_600);
    let has_time_left = |length: &u64| length - now_s % length > 600;
    let length = lengths.into_iter().find(has_time_left);
    Duration::from_secs(length.expect("a length"))
}

pub(crate) fn two_processes() {
    let server = RedisServer::start();
    let window = long_window();
    let window_s = window.as_secs().to_string();
    let mut other = Other::start(&["two_processes", &server.url(), &window_s]);

    let runtime = Runtime::new().expect("a runtime");
    let inside = runtime.enter();
    let store = connect(&server.url());
    let races = all_races(window);
    for race in &races {
        let (name, limiter) = (&race.name, race.limiter(&store));
        assert_eq!(other.line(), "ready");
        other.tell("go");
        let Outcome {
            moved: here,
            held,
            gave,
        } = runtime.block_on(run(race, &limiter));
        let there = other.line();
        let (there, gave_there) = there.split_once(' ').expect("two numbers");
        let there: u64 = there.parse().expect("a number");
        let gave = gave + gave_there.parse::<u64>().expect("a number");
        let moved = here + there;
        if let Some(wanted) = race.moved {
            assert_eq!(moved, wanted, "{name}: {here} + {there}");
        }
        assert_eq!(gave > 0, race.work == Work::TwoAndBack, "{name}");

        let standing = || runtime.block_on(peek(&limiter, "ann"));
        for policy in standing().policies() {
            let left = policy.capacity().saturating_sub(moved);
            assert_eq!(policy.remaining(), left, "{name}: {here} + {there}");
        }
        server.assert_all_keys_expire();

        drop(held);
        other.tell("over");
        if race.work == Work::Hold {
            let is_back = |policy: &PolicyDecision| policy.remaining() == policy.capacity();
            eventually("all permits back", || {
                standing().policies().last().is_some_and(is_back)
            });
            server.assert_all_keys_expire();
        }
        server.command(&["FLUSHALL"]);
        println!("{name}: {here} here + {there} there = {moved} ... ok");
    }
    other.tell("end");
    drop(inside);
    other.end(false);
    println!("{} races", races.len());
}

pub(crate) fn other_process(url: &str, window_s: &str) {
    let window = Duration::from_secs(window_s.parse().expect("a window"));
    let runtime = Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let store = connect(url);
    for race in &all_races(window) {
        let limiter = race.limiter(&store);
        println!("ready");
        heard("go");
        let outcome = runtime.block_on(run(race, &limiter));
        println!("{} {}", outcome.moved, outcome.gave);
        heard("over");
    }
    // Tasks of the runtime release permits, and it ends with this function.
    heard("end");
}

fn heard(word: &str) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a word");
    assert_eq!(line.trim_end(), word);
}

fn connect(url: &str) -> RedisStore {
    // Refunds by the other process, and a flushed database, must show at once.
    let store = patient().denial_cache_ttl(Duration::ZERO);
    store.connect(url).expect("a store")
}

/// What the tasks of one process did.
#[derive(Default)]
struct Outcome {
    /// Units taken, less those refunded.
    moved: u64,
    gave: u64,
    held: Vec<Permit>,
}

/// Starts all tasks together.
async fn run(race: &Race, limiter: &Limiter) -> Outcome {
    let work = race.work;
    let barrier = Arc::new(Barrier::new(TASKS));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (limiter, barrier) = (limiter.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                let mut outcome = Outcome::default();
                barrier.wait().await;
                for _ in 0..CALLS_PER_TASK {
                    call(work, &limiter, &mut outcome).await?;
                }
                Ok::<_, StoreError>(outcome)
            })
        })
        .collect();
    let mut all = Outcome::default();
    for task in tasks {
        let outcome = task.await.expect("no panic").expect("decisions");
        all.moved += outcome.moved;
        all.gave += outcome.gave;
        all.held.extend(outcome.held);
    }
    all
}

async fn call(work: Work, limiter: &Limiter, outcome: &mut Outcome) -> Result<(), StoreError> {
    match work {
        Work::Check(units) => outcome.moved += limiter.check_n("ann", units).await?.charged(),
        Work::UpTo(units) => outcome.moved += limiter.take_up_to("ann", units).await?.charged(),
        Work::Debit(units) => outcome.moved += limiter.debit("ann", units).await?.charged(),
        Work::TwoAndBack => {
            let taken = limiter.check_n("ann", 2).await?.charged();
            if taken > 0 {
                let gave = limiter.credit("ann", 1).await?.refunded();
                outcome.moved += taken - gave;
                outcome.gave += gave;
            }
        }
        Work::Hold => {
            let permit = limiter.acquire("ann", Duration::ZERO).await?;
            if permit.is_allowed() {
                outcome.moved += permit.decision().charged();
                outcome.held.push(permit);
            }
        }
    }
    Ok(())
}
