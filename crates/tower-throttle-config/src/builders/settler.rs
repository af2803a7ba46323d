//! `settle_by`: what a request costs, by its response.

use std::sync::Arc;

use super::reading::{Reading, reader};
use crate::{
    document::At,
    tables::{SettleBy, Settler as Table},
};
use tower_throttle::settle::{self, Settler};

/// Reads a settler.
pub(super) fn read(
    reading: &mut Reading<'_>,
    at: &At,
    table: &SettleBy,
) -> Option<Arc<dyn Settler>> {
    let (field, settler): (_, Arc<dyn Settler>) = match table {
        SettleBy::Word(_) => return Some(Arc::new(settle::failures())),
        SettleBy::Table(Table {
            status: Some(statuses),
            ..
        }) => ("status", Arc::new(settle::status(statuses.iter().copied()))),
        SettleBy::Table(Table {
            header: Some(name),
            pass_on,
            ..
        }) => {
            let settler = settle::header(&name.0);
            let settler = match pass_on {
                Some(true) => settler.pass_on(),
                _ => settler,
            };
            ("header", Arc::new(settler))
        }
        SettleBy::Table(Table {
            body_bytes: Some(bytes),
            ..
        }) => ("body_bytes", Arc::new(settle::body_bytes(*bytes))),
        SettleBy::Table(table) => return reader!(reading, at, table, reader, settle),
    };
    let valid = settler.validate();
    reading.keep(&at.to(&field), valid).map(|()| settler)
}
