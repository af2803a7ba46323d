//! Entries by their ids, in a run that is replaced by a larger or smaller one a
//! part at a time: nobody waits for the whole.

use super::{
    entry::{Entry, Id, is_cell},
    run::{PAGE, Run},
};
use crate::store::Slot;

#[derive(Debug, Default)]
pub(super) struct Table {
    run: Run,
    /// What has not been moved there yet.
    older: Option<Box<Older>>,
    len: usize,
    /// How many of them are cells of the sketch.
    cells: usize,
}

#[derive(Debug)]
struct Older {
    run: Run,
    /// Smaller ids have been moved.
    first: Id,
}

/// Of a run that is replaced, so many entries are moved with each step: more
/// than needed to be done with it before the next is full.
const MOVED: usize = 32;
/// No step looks at more places than that.
pub(super) const SEEN: usize = 256;

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many buckets are of one caller.
    pub(super) const fn callers(&self) -> usize {
        self.len - self.cells
    }

    pub(super) const fn is_moving(&self) -> bool {
        self.older.is_some()
    }

    /// Where a bucket stands, or should be put.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Result<usize, usize> {
        match &self.older {
            Some(older) if id >= older.first => older.run.find(id),
            _ => self.run.find(id),
        }
    }

    #[inline]
    fn run_of(&mut self, id: Id) -> &mut Run {
        match &mut self.older {
            Some(older) if id >= older.first => &mut older.run,
            _ => &mut self.run,
        }
    }

    /// The bucket that was [found](Self::find) there.
    #[inline]
    pub(super) fn get_mut(&mut self, id: Id, at: usize) -> Option<&mut Entry> {
        self.run_of(id).get_mut(at)
    }

    /// Puts a new bucket where [`find`](Self::find) said, if there is something to keep.
    pub(super) fn insert(&mut self, id: Id, at: usize, slot: Slot) {
        let Some(entry) = Entry::new(id, slot) else {
            return;
        };
        self.run_of(id).insert(at, entry);
        self.len += 1;
        self.cells += usize::from(is_cell(id));
        if self.len > most(self.run.places()) && !self.is_moving() {
            let pages = self.run.pages();
            self.replace((pages + 1).max(pages * 5 / 4));
        }
    }

    pub(super) fn remove(&mut self, id: Id) {
        if let Ok(at) = self.find(id) {
            let run = self.run_of(id);
            let (_, removed) = run.retain(at, at + 1, |entry| entry.id != id);
            self.len -= removed;
            self.cells -= removed * usize::from(is_cell(id));
        }
    }

    /// Goes on with moving.
    pub(super) fn go_on(&mut self) {
        let Some(older) = &mut self.older else {
            return;
        };
        let run = &mut self.run;
        older.run.take_first(MOVED, SEEN, |entry| {
            older.first = entry.id + 1;
            if let Err(at) = run.find(entry.id) {
                run.insert(at, entry);
            }
        });
        if older.run.start() >= older.run.end() {
            self.older = None;
        }
    }

    /// Forgets what is drained of some places from `at` on, while nothing is
    /// moved. Says where to go on; `None` at the end.
    pub(super) fn sweep(&mut self, at: usize, now_us: u64) -> Option<usize> {
        let mut cells = 0;
        let keep = |entry: &Entry| {
            let is_kept = entry.drained_at_us() > now_us;
            cells += usize::from(!is_kept && is_cell(entry.id));
            is_kept
        };
        let (at, removed) = self.run.retain(at, at.saturating_add(SEEN), keep);
        self.len -= removed;
        self.cells -= cells;
        (at < self.run.end()).then_some(at)
    }

    /// Takes less room where much of it is free.
    pub(super) fn shrink(&mut self) {
        let pages = (self.len * 3 / 2).div_ceil(PAGE) + 1;
        let is_sparse = self.len < self.run.places() / 16 * 9;
        if is_sparse && pages < self.run.pages() && !self.is_moving() {
            self.replace(pages);
        }
    }

    fn replace(&mut self, pages: usize) {
        let run = std::mem::replace(&mut self.run, Run::new(pages));
        self.older = Some(Box::new(Older { run, first: 0 }));
    }
}

/// How many entries a run takes before it is replaced. In a fuller one they
/// stand further from their own places.
const fn most(places: usize) -> usize {
    places / 4 * 3
}
