//! What callers share that have no bucket of their own: a count-min sketch
//! (Cormode and Muthukrishnan, 2005) whose counters are buckets.
//!
//! Each caller has one cell in each row, chosen by bits of its hash that clients do
//! not know. It is charged to both, and judged by the emptier one: all that it took
//! itself is in both, so it is never admitted beyond its own limit; and a caller is
//! denied only where others have filled both. A cell that holds enough already is
//! not raised (conservative update, Estan and Varghese, 2002).

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::{
    entry::{Entry, Id},
    shard::Shard,
    shards::Shards,
};
use crate::{
    Quota,
    charge::{Charge, Operation},
    store::Slot,
};

const ROWS: usize = 2;

/// A leg's cells, and which of them is the emptiest.
pub(super) struct Cells {
    cells: [Cell; ROWS],
    least: usize,
}

#[derive(Default)]
struct Cell {
    id: Id,
    at: usize,
    slot: Slot,
}

impl Shards {
    /// Takes out the cells of a caller, of which there are half as many for each quota as
    /// buckets of callers; and the words of the emptiest.
    pub(super) fn open_cells(
        &self,
        operation: Operation,
        leg: &Charge<'_>,
        caller: Id,
        now_us: u64,
        shard: &mut Shard,
    ) -> (Cells, Slot) {
        let rows = leg.demand.quota.shared_rows().clamp(1, ROWS);
        let columns = (shard.capacity() / 2 / rows).max(1);
        let mut cells: [Cell; ROWS] = Default::default();
        let mut least = (u64::MAX, 0);
        for (row, cell) in cells.iter_mut().enumerate().take(rows) {
            cell.id = self.cell(leg, row, column(caller, row, columns));
            let found = shard.find(cell.id);
            cell.at = found.unwrap_or_default();
            let bucket = found.ok().and_then(|at| shard.get_mut(cell.id, at));
            cell.slot = bucket.map(Entry::take).unwrap_or_default();
            let level = leg.level_of_newcomers(operation, now_us, &mut cell.slot);
            least = least.min((level, row));
        }
        let (_, least) = least;
        let slot = cells.get(least).map(|cell| cell.slot.clone());
        (Cells { cells, least }, slot.unwrap_or_default())
    }

    fn cell(&self, leg: &Charge<'_>, row: usize, column: u64) -> Id {
        let mut key = [0; 18];
        let (first, rest) = key.split_at_mut(9);
        // No key of a caller starts with 0.
        let [_, first @ ..] = first else { return 0 };
        first.copy_from_slice(&hash_of(&leg.demand.quota).to_le_bytes());
        let [row_at, rest @ ..] = rest else { return 0 };
        *row_at = row as u8;
        rest.copy_from_slice(&column.to_le_bytes());
        let id = self.hash(leg.policy.hash, leg.demand.quota.letter(), &key) | 1;
        // The highest id is that of a free place.
        if id == Id::MAX { 1 } else { id }
    }
}

/// The same numbers, whoever says them: tiers of one policy share no cells.
fn hash_of(quota: &Quota) -> u64 {
    let mut hasher = SipHasher13::new();
    quota.hash(&mut hasher);
    hasher.finish()
}

/// By bits of an id that choose neither its shard nor its place there.
fn column(caller: Id, row: usize, columns: usize) -> u64 {
    let bits = (caller >> (64 * row)) as u32;
    (u64::from(bits) * columns as u64) >> 32
}

impl Cells {
    /// Puts the cells back, of which the emptiest is now `slot`. The others are
    /// raised to hold as much.
    pub(super) fn close(
        self,
        operation: Operation,
        leg: &Charge<'_>,
        now_us: u64,
        mut slot: Slot,
        shard: &mut Shard,
    ) {
        let is_written = slot.drained_at_us.is_some();
        if is_written {
            leg.outlast(operation, now_us, &mut slot);
        }
        for (row, mut cell) in self.cells.into_iter().enumerate() {
            if cell.id == 0 {
                continue;
            }
            if row == self.least {
                cell.slot = slot.clone();
            } else if is_written {
                leg.raise_to(operation, now_us, &mut cell.slot, &slot);
            }
            shard.put(cell.id, cell.at, cell.slot);
        }
    }
}
