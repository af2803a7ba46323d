//! `settle_by`: what a request costs, by its response.

use std::sync::Arc;

use super::reading::{Reading, reader, switch};
use crate::{place::FilePlace, tables::SettleBy};
use tower_throttle::settle::{self, Settler};

/// Reads a settler.
pub(super) fn read(
    reading: &mut Reading<'_>,
    at: &FilePlace,
    table: &SettleBy,
) -> Option<Arc<dyn Settler>> {
    let table = match table {
        SettleBy::Word(_) => return Some(Arc::new(settle::failures())),
        SettleBy::Table(table) => table,
    };
    let (field, settler): (_, Arc<dyn Settler>) = if let Some(statuses) = &table.status {
        ("status", Arc::new(settle::status(statuses.iter().copied())))
    } else if let Some(name) = &table.header {
        let mut settler = settle::header(&name.0);
        switch!(settler, table, pass_on);
        ("header", Arc::new(settler))
    } else if let Some(bytes) = table.body_bytes {
        ("body_bytes", Arc::new(settle::body_bytes(bytes)))
    } else {
        return reader!(reading, at, table, reader, settle);
    };
    let valid = settler.validate();
    reading.keep(&at.to(&field), valid).map(|()| settler)
}
