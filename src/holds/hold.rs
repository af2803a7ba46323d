//! Held units that a handler settles.

use std::fmt;

use smallvec::SmallVec;

use super::{Holds, Settlement};

/// Settles the held units of a request, from its handler.
///
/// A layer with policies that [hold units](crate::Policy::hold_for) puts it into the extensions of each
/// request that it forwards. It is there even if the request holds no units: because no such policy
/// applies, a [list](crate::Lists) allows the caller, or the store failed.
///
/// A handler that knows the use of the request settles it. The first settlement of a policy wins.
/// Units that are not settled when the last clone is dropped and the response has ended are charged
/// in full.
///
/// It is a handle: clones belong to the same request, and may move into a stream or a task. No
/// method waits for the store.
///
/// ```
/// use axum::Extension;
/// use tower_throttle::Hold;
///
/// async fn complete(Extension(hold): Extension<Hold>, prompt: String) -> String {
///     let (reply, tokens) = (prompt.to_uppercase(), 17); // of the language model
///     hold.settle("tokens", tokens);
///     reply
/// }
/// ```
///
/// Under stacked layers it has the policies of all of them. If two have one name, it settles the
/// policy of the inner layer.
#[derive(Clone)]
pub struct Hold(SmallVec<[Holds; 1]>);

impl Hold {
    /// Creates the handle of a request. `outer`: that of the layers around this one.
    pub(crate) fn new(holds: Option<Holds>, outer: Option<&Self>) -> Self {
        let mut all: SmallVec<[Holds; 1]> = holds.into_iter().collect();
        all.extend(outer.into_iter().flat_map(|outer| outer.0.iter().cloned()));
        Self(all)
    }

    fn holds(&self, policy: &str) -> Option<&Holds> {
        self.0.iter().find(|holds| holds.units(policy).is_some())
    }

    /// Charges `units` to a policy, and releases the rest of the hold. Units above the hold are a
    /// debt, up to the policy's [`max_debt`](crate::Policy::max_debt).
    ///
    /// Returns `false` if it has no effect, because the policy was settled before, or because this
    /// request holds no units of it.
    pub fn settle(&self, policy: &str, units: u64) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Units(units)))
    }

    /// Releases all held units of a policy, so that the request costs nothing. Returns the same as
    /// [`settle`](Self::settle).
    pub fn release(&self, policy: &str) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Release))
    }

    /// Returns the units that are charged to a policy if it is not settled. `None` if this request
    /// holds no units of it: the policy does not hold, did not apply, or allowed the request while the
    /// store failed.
    #[must_use]
    pub fn units(&self, policy: &str) -> Option<u64> {
        self.holds(policy)?.units(policy)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}
