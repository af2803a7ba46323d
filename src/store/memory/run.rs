//! Entries in the order of their ids, with gaps between them.
//!
//! An entry's own place is its id as a fraction of all places, and it stands
//! there or, where others with smaller ids do, closely behind them (linear
//! probing in order, with no gap between an entry and its own place). So a run
//! can be moved into one of another size from its start on, a part at a time.

use std::mem;

use super::entry::{Entry, Id};

/// Places that are allocated together.
pub(super) const PAGE: usize = 64;

#[repr(align(64))]
#[derive(Debug)]
struct Page([Entry; PAGE]);

#[derive(Debug, Default)]
pub(super) struct Run {
    /// One that is missing has free places only.
    pages: Vec<Option<Box<Page>>>,
    /// How many places ids are spread over: all but some at the end, for who is pushed behind.
    places: usize,
    /// Nothing stands before that.
    start: usize,
}

impl Run {
    /// One with room at three quarters of its places.
    pub(super) fn new(pages: usize) -> Self {
        Self {
            pages: Vec::with_capacity(pages),
            places: (pages * PAGE).saturating_sub(PAGE / 4),
            start: 0,
        }
    }

    pub(super) const fn start(&self) -> usize {
        self.start
    }

    pub(super) const fn places(&self) -> usize {
        self.places
    }

    pub(super) const fn pages(&self) -> usize {
        self.places.div_ceil(PAGE)
    }

    /// Behind the last entry.
    pub(super) fn end(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Where an entry stands, or should be put.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Result<usize, usize> {
        let mut at = self.own(id);
        while let Some(Some(page)) = self.pages.get(at / PAGE) {
            for entry in page.0.get(at % PAGE..).unwrap_or_default() {
                work::add(1);
                if entry.id >= id {
                    return if entry.id == id { Ok(at) } else { Err(at) };
                }
                at += 1;
            }
        }
        Err(at)
    }

    fn get(&self, at: usize) -> Option<&Entry> {
        work::add(1);
        self.pages.get(at / PAGE)?.as_ref()?.0.get(at % PAGE)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.pages
            .get_mut(at / PAGE)?
            .as_mut()?
            .0
            .get_mut(at % PAGE)
    }

    /// Puts an entry where [`find`](Self::find) said. Those behind it make room.
    pub(super) fn insert(&mut self, mut at: usize, mut entry: Entry) {
        while !entry.is_free() {
            entry = self.replace(at, entry);
            at += 1;
        }
    }

    /// Removes what is not to be kept of all that stands from `at` to `end`, and
    /// on to where no gap is left to be closed. Says where that is, and how many
    /// were removed.
    pub(super) fn retain(
        &mut self,
        mut at: usize,
        end: usize,
        mut keep: impl FnMut(&Entry) -> bool,
    ) -> (usize, usize) {
        let (mut free, mut removed) = (at, 0);
        while at < self.end() {
            let Some(entry) = self.get(at) else {
                at = next_page(at);
                if at >= end {
                    break;
                }
                continue;
            };
            let own = if entry.is_free() {
                at
            } else {
                self.own(entry.id)
            };
            if at >= end && own >= at {
                break;
            }
            if !entry.is_free() {
                let to = own.max(free);
                if !keep(entry) {
                    self.replace(at, Entry::FREE);
                    removed += 1;
                } else {
                    if to < at {
                        let entry = self.replace(at, Entry::FREE);
                        self.replace(to, entry);
                    }
                    free = to + 1;
                }
            }
            at += 1;
            if at % PAGE == 0 {
                self.free_if_empty(at / PAGE - 1);
            }
        }
        (at, removed)
    }

    /// Takes some entries from the start on, and looks at no more places than that.
    pub(super) fn take_first(
        &mut self,
        entries: usize,
        places: usize,
        mut each: impl FnMut(Entry),
    ) {
        let (mut taken, mut seen) = (0, 0);
        while taken < entries && seen < places && self.start < self.end() {
            seen += 1;
            let Some(entry) = self.get(self.start) else {
                self.start = next_page(self.start);
                continue;
            };
            if !entry.is_free() {
                each(self.replace(self.start, Entry::FREE));
                taken += 1;
            }
            self.start += 1;
            if self.start % PAGE == 0 {
                self.free_if_empty(self.start / PAGE - 1);
            }
        }
    }

    /// Where an entry stands if none is in its way.
    #[inline]
    fn own(&self, id: Id) -> usize {
        let high = id >> 64;
        let own = (high * self.places as u128) >> 64;
        (own as usize).max(self.start)
    }

    fn replace(&mut self, at: usize, entry: Entry) -> Entry {
        work::add(1);
        let number = at / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let Some(page) = self.pages.get_mut(number) else {
            return Entry::FREE;
        };
        let page = page.get_or_insert_with(|| Box::new(Page([const { Entry::FREE }; PAGE])));
        match page.0.get_mut(at % PAGE) {
            Some(place) => mem::replace(place, entry),
            None => Entry::FREE,
        }
    }

    fn free_if_empty(&mut self, number: usize) {
        if let Some(page) = self.pages.get_mut(number) {
            let is_empty = |page: &Page| page.0.iter().all(Entry::is_free);
            if page.as_deref().is_some_and(is_empty) {
                *page = None;
            }
        }
    }
}

const fn next_page(at: usize) -> usize {
    (at / PAGE + 1) * PAGE
}

/// How many entries were looked at or moved: for tests.
pub(super) mod work {
    #[cfg(test)]
    thread_local!(static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    #[inline]
    pub(super) fn add(_entries: usize) {
        #[cfg(test)]
        DONE.set(DONE.get() + _entries);
    }

    #[cfg(test)]
    pub(in super::super) fn take() -> usize {
        DONE.take()
    }
}
