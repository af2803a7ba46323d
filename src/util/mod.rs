//! Small things that know nothing of limits.

pub(crate) mod interned;
pub(crate) mod lock;
pub(crate) mod random;
pub(crate) mod time;
