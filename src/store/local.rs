//! What a store on a server has in this process.

use std::sync::Arc;

use super::keyed::KeyedHash;
use crate::{Clock, SystemClock};

/// A clock, and secret numbers.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) clock: Arc<dyn Clock>,
    /// The store goes by the same clock: nothing passes between them.
    pub(crate) is_the_stores_clock: bool,
    pub(crate) hash: KeyedHash,
}

impl Local {
    /// `clock`: the one that the store goes by, if that is not a server's own.
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            is_the_stores_clock: clock.is_some(),
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            hash: KeyedHash::new(),
        }
    }
}
