//! A job queue that calls an outside API, which allows five calls a second.
//!
//! Several workers pull jobs from one channel, and each waits for its turn
//! before it calls. It needs no server, and ends when all jobs have run:
//!
//! ```text
//! cargo run --example job_queue
//! # 12 jobs have run, at most one each 200ms
//! ```
//!
//! With a `RedisStore` in place of the `MemoryStore`, the workers of all
//! processes share the five.

use std::{error::Error, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::Instant,
};
use tower_throttle::{LeakyBucket, Limiter, MemoryStore, Policy, StoreError};

const JOBS: u32 = 12;
const WORKERS: u64 = 4;
const INTERVAL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A queue spaces the calls evenly, and has a place for each worker.
    let calls = LeakyBucket::per_second(5).queue(WORKERS);
    let limiter = Limiter::new(MemoryStore::new(), Policy::new("calls", calls));

    let (sender, jobs) = mpsc::channel(1);
    let (jobs, started) = (Arc::new(Mutex::new(jobs)), Instant::now());
    let mut workers = JoinSet::new();
    for worker in 1..=WORKERS {
        let (jobs, limiter) = (Arc::clone(&jobs), limiter.clone());
        workers.spawn(async move {
            let mut ran_at = Vec::new();
            while let Some(job) = next(&jobs).await {
                let turn = limiter.acquire("outside-api", PATIENCE).await?;
                assert!(turn.is_allowed(), "the queue is full, or the wait too long");
                ran_at.push(started.elapsed());
                println!("{:.1?}: worker {worker} runs job {job}", started.elapsed());
            }
            Ok::<_, StoreError>(ran_at)
        });
    }
    for job in 1..=JOBS {
        sender.send(job).await?;
    }
    drop(sender);

    let mut ran_at = Vec::new();
    while let Some(worker) = workers.join_next().await {
        ran_at.extend(worker??);
    }
    ran_at.sort();
    assert_eq!(ran_at.len(), JOBS as usize);
    for (turn, at) in (0..JOBS).zip(ran_at) {
        assert!(at >= turn * INTERVAL, "call {turn} came too soon: {at:?}");
    }
    println!("{JOBS} jobs have run, at most one each {INTERVAL:?}");
    Ok(())
}

async fn next(jobs: &Mutex<mpsc::Receiver<u32>>) -> Option<u32> {
    jobs.lock().await.recv().await
}
