//! The API: JSON below `/api/v1/`.

mod changes;
mod look_ups;
mod reads;
