//! Cells, which callers without a bucket of their own share: a count-min sketch (Cormode
//! and Muthukrishnan, 2005) whose counters are buckets.
//!
//! A secret hash chooses one cell of each row for a caller. The caller is charged to both
//! cells, and the emptier one decides. Each cell contains all that the caller took, so it is
//! never admitted beyond its own limit. It is denied below its limit only if others have
//! filled both cells. A cell that holds enough already is not raised (conservative update,
//! Estan and Varghese, 2002).

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::{
    entry::{BucketId, cell_id},
    shard::Shard,
};
use crate::{
    Quota,
    charge::{Charge, Operation},
    store::BucketWords,
    util::hash::SecretHasher,
};

const ROWS: usize = 2;

/// The cells of a charge.
pub(super) struct Cells {
    /// Their ids and words. The id is 0 for a row that the quota does not use.
    cells: [(BucketId, BucketWords); ROWS],
    /// The index of the emptiest.
    least: usize,
}

impl Cells {
    /// Takes out the cells of a caller, and returns them with the words of the emptiest. For
    /// each quota there are half as many cells as buckets of callers.
    #[expect(clippy::indexing_slicing, reason = "`least` is one of the rows")]
    pub(super) fn open(
        hash: &SecretHasher,
        operation: Operation,
        charge: &Charge<'_>,
        caller: BucketId,
        now_us: u64,
        shard: &mut Shard,
    ) -> (Self, BucketWords) {
        let rows = charge.demand.quota.shared_rows().clamp(1, ROWS);
        let columns = (shard.capacity() / 2 / rows).max(1);
        let chosen = hash.hash_64(charge.policy.hash, 0, &caller.to_le_bytes());
        let mut cells: [(BucketId, BucketWords); ROWS] = Default::default();
        let mut least = (u64::MAX, 0);
        for (row, (id, words)) in cells.iter_mut().enumerate().take(rows) {
            *id = id_of(hash, charge, row, column(chosen, row, columns));
            *words = shard.take(*id);
            let level = charge.level_of_newcomers(operation, now_us, words);
            least = least.min((level, row));
        }
        let (_, least) = least;
        let bucket = cells[least].1.clone();
        (Self { cells, least }, bucket)
    }

    /// Puts the cells back. `bucket` is what the emptiest holds now; the others are raised to
    /// hold as much.
    pub(super) fn close(
        self,
        operation: Operation,
        charge: &Charge<'_>,
        now_us: u64,
        mut bucket: BucketWords,
        shard: &mut Shard,
    ) {
        let is_written = bucket.drained_at_us.is_some();
        if is_written {
            charge.outlast(operation, now_us, &mut bucket);
        }
        for (row, (id, mut words)) in self.cells.into_iter().enumerate() {
            if id == 0 {
                continue;
            }
            if row == self.least {
                words = bucket.clone();
            } else if is_written {
                charge.raise_to(operation, now_us, &mut words, &bucket);
            }
            shard.put(id, &mut words);
        }
    }
}

fn id_of(hash: &SecretHasher, charge: &Charge<'_>, row: usize, column: u64) -> BucketId {
    // No key of a caller starts with 0.
    let mut key = [0; 18];
    key[1..9].copy_from_slice(&hash_of(&charge.demand.quota).to_le_bytes());
    key[9] = row as u8;
    key[10..].copy_from_slice(&column.to_le_bytes());
    cell_id(hash.hash_64(charge.policy.hash, charge.demand.quota.letter(), &key))
}

/// Hashes the numbers of a quota, so that tiers of one policy share no cells.
fn hash_of(quota: &Quota) -> u64 {
    let mut hasher = SipHasher13::new();
    quota.hash(&mut hasher);
    hasher.finish()
}

/// Chooses a column by 32 bits, other ones for each row.
fn column(chosen: u64, row: usize, columns: usize) -> u64 {
    let bits = (chosen >> (32 * row)) as u32;
    (u64::from(bits) * columns as u64) >> 32
}
