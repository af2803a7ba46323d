//! The API: JSON below `/api/v1/`.

#[cfg(feature = "tracing")]
mod audit;
mod changes;
#[cfg(feature = "config")]
mod files;
mod look_ups;
mod page;
mod reads;
mod stream;
