//! `settle_by`: what a request costs, by its response.

use std::sync::Arc;

use super::reading::Reading;
use crate::field::Field;
use tower_throttle::settle::{self, Settler};

/// Reads a settler.
pub(super) fn read(reading: &mut Reading<'_>, field: &Field<'_>) -> Option<Arc<dyn Settler>> {
    if field.table().is_none() {
        // The only word.
        return Some(Arc::new(settle::failures()));
    }
    let registered = &reading.readers.settle;
    if let Some(settler) = reading.named(field.get("reader").as_ref(), registered, "settle") {
        return Some(Arc::clone(settler));
    }
    let (value, settler): (_, Arc<dyn Settler>) = if let Some(list) = field.get("status") {
        let statuses = list.items();
        let statuses = statuses.iter().filter_map(Field::whole);
        let statuses: Vec<_> = statuses
            .filter_map(|status| u16::try_from(status).ok())
            .collect();
        (list, Arc::new(settle::status(statuses)))
    } else if let Some(name) = field.get("header") {
        let settler = settle::header(name.text()?);
        let settler = match field.is_set("pass_on") {
            true => settler.pass_on(),
            false => settler,
        };
        (name, Arc::new(settler))
    } else {
        let bytes = field.get("body_bytes")?;
        let settler = settle::body_bytes(bytes.whole()?);
        (bytes, Arc::new(settler))
    };
    let valid = settler.validate();
    reading.keep(&value, valid).map(|()| settler)
}
