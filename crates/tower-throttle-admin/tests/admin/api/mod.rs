//! The API: JSON below `/api/v1/`.

mod audit;
mod changes;
mod files;
mod look_ups;
mod page;
mod reads;
mod samples;
