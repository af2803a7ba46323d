//! Faults of all other rows, one after another, for as long as requested, under constant load.
//!
//! Environment, as `scripts/soak` sets it: `TT_SEED` determines the faults, and
//! `TT_SOAK_MINUTES` for how long they come.

mod failovers;
mod flat;
mod server;
mod stage;

use std::time::Instant;

use tokio::{runtime::Handle, sync::watch};

use self::{
    failovers::{InCluster, UnderSentinels},
    flat::Sample,
    server::OneServer,
    stage::Stage,
};
use crate::prelude::*;

const LOAD: Load = Load::new(150, 100, 320);
/// The order of stages: one server has most of the faults.
const TURNS: [usize; 6] = [0, 0, 0, 0, 1, 2];

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    match value.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} is not a number: {value}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_of_all_faults_breaks_no_promise() {
    let seed = setting("TT_SEED").unwrap_or(1);
    let minutes: Option<f64> = setting("TT_SOAK_MINUTES");
    let short = Duration::from_secs(if judges_time() { 12 } else { 5 });
    let time = minutes.map_or(short, |minutes| Duration::from_secs_f64(minutes * 60.0));
    println!("seed {seed}, for {time:?}");
    let mut row = Row::start("soak");
    let mut stages = vec![Stage::new("one server", OneServer::start().await)];
    // A failover takes as long as all of the short form.
    if judges_time() {
        stages.push(Stage::new("Sentinel", UnderSentinels::start().await));
        stages.push(Stage::new("cluster", InCluster::start().await));
    }
    let (over, is_over) = watch::channel(false);
    let loads: Vec<_> = stages
        .iter()
        .map(|stage| {
            let (limiter, recorder) = (stage.limiter.clone(), stage.recorder.clone());
            let mut is_over = is_over.clone();
            tokio::spawn(async move {
                let over = async { drop(is_over.wait_for(|is_over| *is_over).await) };
                LOAD.run(&limiter, &recorder, over).await;
            })
        })
        .collect();
    let runtime = Handle::current();
    let played = tokio::task::spawn_blocking(move || play(stages, seed, time, &runtime));
    let (stages, samples) = played.await.expect("every fault is made and mended");
    over.send_replace(true);
    for load in loads {
        load.await.expect("the load");
    }

    let faults = stages.iter().map(Stage::faults).sum();
    assert!(faults > 0, "nothing was made to fail");
    for stage in stages {
        stage.judge(&row);
    }
    // Otherwise other rows run in this process, too.
    if judges_time() {
        flat::judge(&samples, &mut row).expect("nothing grows");
    }
    row.tell(faults);
}

fn play(
    mut stages: Vec<Stage>,
    seed: u64,
    time: Duration,
    runtime: &Handle,
) -> (Vec<Stage>, Vec<Sample>) {
    let mut dice = Random::from_seed(seed);
    let started = Instant::now();
    let mut samples = Vec::new();
    while started.elapsed() < time {
        let turn = dice.one_of(&TURNS) % stages.len();
        let stage = &mut stages[turn];
        let fault = stage.suffer(&mut dice);
        let at = started.elapsed().as_secs_f64();
        println!("{at:.1} s: {}: {fault}", stage.name);
        stages.iter().for_each(Stage::write_down);
        samples.push(Sample::now(runtime));
    }
    (stages, samples)
}
