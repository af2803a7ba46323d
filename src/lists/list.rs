//! [`List`]: allow or deny.

/// One of the two [`Lists`](crate::Lists).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Its callers are not limited.
    Allow,
    /// Its callers are denied.
    Deny,
}

impl List {
    /// Returns its name, as pages and logs show it: `"deny"`, for example.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}
