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
    entry::{BucketId, cell_id},
    shard::Shard,
};
use crate::{
    Quota,
    charge::{Charge, Operation},
    store::{Slot, keyed::KeyedHash},
};

const ROWS: usize = 2;

/// A charge's cells, and which of them is the emptiest.
pub(super) struct Cells {
    cells: [Cell; ROWS],
    least: usize,
}

#[derive(Default)]
struct Cell {
    id: BucketId,
    slot: Slot,
}

impl Cells {
    /// Takes out the cells of a caller, of which there are half as many for each quota as
    /// buckets of callers; and the words of the emptiest.
    pub(super) fn open(
        hash: &KeyedHash,
        operation: Operation,
        charge: &Charge<'_>,
        caller: BucketId,
        now_us: u64,
        shard: &mut Shard,
    ) -> (Self, Slot) {
        let rows = charge.demand.quota.shared_rows().clamp(1, ROWS);
        let columns = (shard.capacity() / 2 / rows).max(1);
        let chosen = hash.of_64(charge.policy.hash, 0, &caller.to_le_bytes());
        let mut cells: [Cell; ROWS] = Default::default();
        let mut least = (u64::MAX, 0);
        for (row, cell) in cells.iter_mut().enumerate().take(rows) {
            cell.id = id_of(hash, charge, row, column(chosen, row, columns));
            cell.slot = shard.take(cell.id);
            let level = charge.level_of_newcomers(operation, now_us, &mut cell.slot);
            least = least.min((level, row));
        }
        let (_, least) = least;
        let slot = cells.get(least).map(|cell| cell.slot.clone());
        (Self { cells, least }, slot.unwrap_or_default())
    }

    /// Puts the cells back, of which the emptiest is now `slot`. The others are
    /// raised to hold as much.
    pub(super) fn close(
        self,
        operation: Operation,
        charge: &Charge<'_>,
        now_us: u64,
        mut slot: Slot,
        shard: &mut Shard,
    ) {
        let is_written = slot.drained_at_us.is_some();
        if is_written {
            charge.outlast(operation, now_us, &mut slot);
        }
        for (row, mut cell) in self.cells.into_iter().enumerate() {
            if cell.id == 0 {
                continue;
            }
            if row == self.least {
                cell.slot = slot.clone();
            } else if is_written {
                charge.raise_to(operation, now_us, &mut cell.slot, &slot);
            }
            shard.put(cell.id, cell.slot);
        }
    }
}

fn id_of(hash: &KeyedHash, charge: &Charge<'_>, row: usize, column: u64) -> BucketId {
    let mut key = [0; 18];
    let (first, rest) = key.split_at_mut(9);
    // No key of a caller starts with 0.
    let [_, first @ ..] = first else { return 0 };
    first.copy_from_slice(&hash_of(&charge.demand.quota).to_le_bytes());
    let [row_at, rest @ ..] = rest else { return 0 };
    *row_at = row as u8;
    rest.copy_from_slice(&column.to_le_bytes());
    cell_id(hash.of_64(charge.policy.hash, charge.demand.quota.letter(), &key))
}

/// The same numbers, whoever says them: tiers of one policy share no cells.
fn hash_of(quota: &Quota) -> u64 {
    let mut hasher = SipHasher13::new();
    quota.hash(&mut hasher);
    hasher.finish()
}

/// Each row uses 32 bits of its own.
fn column(chosen: u64, row: usize, columns: usize) -> u64 {
    let bits = (chosen >> (32 * row)) as u32;
    (u64::from(bits) * columns as u64) >> 32
}
