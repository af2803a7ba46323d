//! A limiter, what is behind it, and the outcomes of its requests.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use tower_throttle::Limiter;

use super::dice::Dice;
use crate::{
    checker::{self, Elsewhere, Promise, Window},
    figures::{ms, tell},
    ledger::{self, Entry, Outcome, Recorder},
    machine::{self, Stall},
    outage::{BURST, PER_S},
    rig,
};

/// A fault, and for how long after its end state may still be lost; `None` if none is lost.
pub(super) type Fault = (&'static str, Option<Duration>);

pub(super) trait Scene: Send {
    fn limiter(&self) -> &Limiter;

    fn faults(&self) -> &'static [Fault];

    /// Makes the fault and ends it. `mended` is called as soon as the store can decide again.
    /// Returns when the next fault may come.
    fn make(&mut self, fault: &str, dice: &mut Dice, mended: &mut dyn FnMut());

    /// Returns the key on which to check whether the store decides again.
    fn hurt(&self) -> Option<u32> {
        None
    }

    /// Returns for how long state may still be lost, if some may have been lost since the last
    /// fault by itself.
    fn still_loses(&self) -> Option<Duration> {
        None
    }

    /// I6.
    fn resumes(&self) -> Duration;
}

pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) limiter: Limiter,
    pub(super) recorder: Recorder,
    scene: Box<dyn Scene>,
    losses: Vec<Window>,
    /// When the last fault ended, and how often state was lost by itself.
    quiet_us: u64,
    unasked: u64,
    /// How often each fault was made, and the longest time until decisions came back.
    made: BTreeMap<&'static str, (u64, Duration)>,
    broken: Vec<String>,
    ledger: PathBuf,
}

impl Stage {
    pub(super) fn new(name: &'static str, scene: impl Scene + 'static) -> Self {
        let file = format!("tower-throttle-soak-{}-{name}", std::process::id());
        let recorder = Recorder::new(0);
        Self {
            name,
            limiter: scene.limiter().clone(),
            quiet_us: recorder.now_us(),
            unasked: 0,
            recorder,
            scene: Box::new(scene),
            losses: Vec::new(),
            made: BTreeMap::new(),
            broken: Vec::new(),
            ledger: std::env::temp_dir().join(file),
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.made.values().map(|(times, _)| times).sum()
    }

    /// Makes any fault. Returns its name.
    pub(super) fn suffer(&mut self, dice: &mut Dice) -> &'static str {
        let (fault, loses_for) = *dice.of(self.scene.faults());
        let from_us = self.recorder.now_us();
        if let Some(loses_for) = self.scene.still_loses() {
            self.unasked += 1;
            let loss = Window {
                from_us: self.quiet_us,
                to_us: from_us,
            };
            self.losses.push(loss.and(loses_for));
        }
        let mut mended_us = None;
        let recorder = self.recorder.clone();
        let mut mended = || mended_us = Some(recorder.now_us());
        self.scene.make(fault, dice, &mut mended);
        let mended_us = mended_us.expect("every fault is mended");
        let within = self.scene.resumes();
        let resumed = self.resumed(mended_us, within);
        let (times, longest) = self.made.entry(fault).or_default();
        *times += 1;
        match resumed {
            Ok(took) => *longest = took.max(*longest),
            Err(broken) => self.broken.push(format!("{fault}: {broken}")),
        }
        if let Some(loses_for) = loses_for {
            let loss = Window {
                from_us,
                to_us: mended_us,
            };
            self.losses.push(loss.and(loses_for));
        }
        self.quiet_us = mended_us;
        fault
    }

    fn resumed(&self, from_us: u64, within: Duration) -> Result<Duration, String> {
        let hurt = self.scene.hurt();
        let is_hurt = |entry: &Entry| hurt.is_none_or(|hurt| entry.key == hurt);
        let by_store = |entry: &Entry| entry.sent_us >= from_us && entry.outcome.is_by_store();
        let until = Instant::now() + within;
        while Instant::now() < until && !self.recorder.has(|e| is_hurt(e) && by_store(e)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ledger = self.recorder.ledger();
        let hurt: Vec<_> = ledger.into_iter().filter(is_hurt).collect();
        checker::resumed(&hurt, from_us, within)
            .map_err(|broken| format!("{broken}, {:?}", checker::outcomes(&hurt)))
    }

    /// Writes the ledger to a file, so that it takes no memory.
    pub(super) fn write_down(&self) {
        ledger::append(&self.ledger, &self.recorder.take());
    }

    /// Prints what was found, and returns what was broken.
    pub(super) fn judge(mut self, stalls: &[Stall]) -> Vec<String> {
        self.write_down();
        let mut ledger = ledger::read(&self.ledger).expect("its ledger");
        ledger.sort_by_key(|entry| (entry.sent_us, entry.id));
        let promise = Promise {
            burst: BURST,
            per_s: PER_S as f64,
            losses: std::mem::take(&mut self.losses),
            elsewhere: Elsewhere::Nothing,
        };
        let mut found = Vec::new();
        let mut broken = std::mem::take(&mut self.broken);
        match checker::admitted(&ledger, &promise) {
            Ok(used) => found.push(("of what may be admitted", format!("{used:.3}"))),
            Err(error) => broken.push(error),
        }
        match machine::answered(&ledger, rig::patience().1, stalls) {
            Ok(answered) => found.extend([
                ("p99.9", ms(answered.others.p999)),
                ("longest", ms(answered.others.most)),
                ("excused by the machine", answered.excused.to_string()),
                ("longest of these", ms(answered.longest_excused)),
            ]),
            Err(error) => broken.push(error),
        }
        let (late, unexcused) = machine::late(&ledger, rig::IN_TIME, stalls);
        let late = format!("{late}, {unexcused} of them without a stall");
        found.push(("later than 100 ms", late));
        broken.extend(checker::nothing_broke(&ledger).err());
        let foreign = rig::count(&ledger, |outcome| outcome == Outcome::ForeignReply);
        if foreign > 0 {
            broken.push(format!("I4: {foreign} foreign replies"));
        }
        if self.unasked > 0 {
            found.push(("failovers of themselves", self.unasked.to_string()));
        }
        found.push(("foreign replies", foreign.to_string()));
        let by_store = rig::count(&ledger, Outcome::is_by_store);
        found.push(("by the store", format!("{by_store} of {}", ledger.len())));
        tell(&format!("soak {}", self.name), self.faults(), &found);
        for (fault, (times, longest)) in &self.made {
            let row = format!("soak {}: {fault}", self.name);
            tell(&row, *times, &[("resumed after", ms(*longest))]);
        }
        let name = self.name;
        broken
            .iter()
            .map(|broken| format!("{name}: {broken}"))
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ledger);
    }
}
