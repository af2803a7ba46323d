//! A limiter, what is behind it, and the outcomes of its requests.

use std::path::PathBuf;

use crate::ledger;
use crate::prelude::*;

/// A fault, and for how long after its end state may still be lost; `None` if none is lost.
pub(super) type Fault = (&'static str, Option<Duration>);

pub(super) trait Scene: Send {
    fn limiter(&self) -> &Limiter;

    fn faults(&self) -> &'static [Fault];

    /// Makes the fault and ends it. `mended` is called as soon as the store can decide again.
    /// Returns when the next fault may come.
    fn make(&mut self, fault: &str, dice: &mut Random, mended: &mut dyn FnMut());

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
            ledger: std::env::temp_dir().join(file),
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.made.values().map(|(times, _)| times).sum()
    }

    /// Makes any fault. Returns its name.
    pub(super) fn suffer(&mut self, dice: &mut Random) -> &'static str {
        let (fault, loses_for) = dice.one_of(self.scene.faults());
        let from_us = self.recorder.now_us();
        if let Some(loses_for) = self.scene.still_loses() {
            self.unasked += 1;
            let (from_us, to_us) = (self.quiet_us, from_us);
            self.losses.push(Window { from_us, to_us }.and(loses_for));
        }
        let mut mended_us = None;
        let recorder = self.recorder.clone();
        let mut mended = || mended_us = Some(recorder.now_us());
        self.scene.make(fault, dice, &mut mended);
        let mended_us = mended_us.expect("every fault is mended");
        let took = self.resumed(mended_us);
        let (times, longest) = self.made.entry(fault).or_default();
        *times += 1;
        *longest = took.max(*longest);
        if let Some(loses_for) = loses_for {
            let to_us = mended_us;
            self.losses.push(Window { from_us, to_us }.and(loses_for));
        }
        self.quiet_us = mended_us;
        fault
    }

    fn resumed(&self, from_us: u64) -> Duration {
        let hurt = self.scene.hurt();
        let is_hurt = |entry: &Entry| hurt.is_none_or(|hurt| entry.key == hurt);
        let by_store = |entry: &Entry| entry.sent_us >= from_us && entry.outcome.is_by_store();
        wait::until("decisions of the store", || {
            self.recorder.has(|entry| is_hurt(entry) && by_store(entry))
        });
        let ledger = self.recorder.ledger();
        let hurt: Vec<_> = ledger.into_iter().filter(is_hurt).collect();
        checker::resumed(&hurt, from_us).expect("I6")
    }

    /// Writes the ledger to a file, so that it takes no memory.
    pub(super) fn write_down(&self) {
        ledger::append(&self.ledger, &self.recorder.take());
    }

    /// Judges the ledger, and prints what was found.
    pub(super) fn judge(mut self, soak: &Row) {
        self.write_down();
        let mut ledger = ledger::read(&self.ledger).expect("its ledger");
        ledger.sort_by_key(|entry| (entry.sent_us, entry.id));
        let mut row = soak.part(self.name);
        let promise = outage::promise(std::mem::take(&mut self.losses));
        let used = checker::admitted(&ledger, &promise).expect("I1");
        row.figure("of what may be admitted", format!("{used:.3}"));
        checker::nothing_broke(&ledger).expect("I7");
        let foreign = rig::count(&ledger, |outcome| outcome == Outcome::ForeignReply);
        assert_eq!(foreign, 0, "I4");
        row.figure("foreign replies", foreign);
        row.answered(&ledger);
        if self.unasked > 0 {
            row.figure("failovers of themselves", self.unasked);
        }
        let by_store = rig::count(&ledger, Outcome::is_by_store);
        row.figure("by the store", format!("{by_store} of {}", ledger.len()));
        row.tell(self.faults());
        for (fault, (times, longest)) in &self.made {
            let mut row = soak.part(&format!("{}: {fault}", self.name));
            row.took("resumed after", *longest, self.scene.resumes());
            row.tell(*times);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ledger);
    }
}
