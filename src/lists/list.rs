//! [`List`]: allow or deny.

/// One of the two [`Lists`](crate::Lists).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Its callers are not limited.
    Allow,
    /// Its callers are denied.
    Deny,
}
