//! Mistakes seen at build time, and failures of a store at run time.

mod config;
mod store;

pub(crate) use self::store::StoreErrorKind;
pub use self::{config::ConfigError, store::StoreError};
