//! What a policy reads from a request.

use super::{
    erased::Erased,
    key::{HeadReader, KeyExtractor},
    settle::Settler,
};
use crate::Quota;

/// What a policy reads from a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyReaders {
    pub(super) key: Option<Erased<dyn KeyExtractor>>,
    pub(super) cost_by: Option<HeadReader<u64>>,
    pub(super) when: Option<HeadReader<bool>>,
    pub(crate) quota_by: Option<HeadReader<Quota>>,
    pub(super) on_missing_key: Option<OnMissingKey>,
    pub(crate) settle_by: Option<Erased<dyn Settler>>,
}

impl PolicyReaders {
    /// Returns the method that set one of them, if any is set.
    pub(crate) fn method(&self) -> Option<&'static str> {
        [
            (self.key.is_some(), "key"),
            (self.cost_by.is_some(), "cost_by"),
            (self.when.is_some(), "when"),
            (self.quota_by.is_some(), "quota_by"),
            (self.on_missing_key.is_some(), "on_missing_key"),
            (self.settle_by.is_some(), "settle_by"),
        ]
        .into_iter()
        .find_map(|(is_set, method)| is_set.then_some(method))
    }
}

/// Sets how to treat a request that lacks the key of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// Deny the request with 403. This is the default, so that leaving out a header does
    /// not avoid a limit.
    #[default]
    Deny,
    /// Do not apply the policy. **The danger**: a client that leaves out the key is not
    /// limited by it. Add another policy for such requests.
    Skip,
    /// Let all requests without the key share one bucket.
    Share,
}
