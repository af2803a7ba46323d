//! What a handler settles.

use std::fmt;

use smallvec::SmallVec;

use super::{Holds, Settlement};

/// Settles what a request holds, from its handler.
///
/// It is in the extensions of each request that a layer with policies that
/// [hold units](crate::Policy::hold_for) forwards, also if the request holds nothing: no such policy
/// applies, a [list](crate::Lists) allows the caller, or the store failed.
///
/// A handler that knows what the request used settles it. The first settlement of a policy wins.
/// What is not settled when the last clone is dropped and the response has ended is charged in
/// full.
///
/// It is a handle: clones are about the same request, and may move into a stream or a task. No
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
/// Under stacked layers it has the policies of all of them. Of two with one name, it is about
/// that of the inner layer.
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

    /// Charges `units` to a policy, and releases the rest of what is held. More than is held is a
    /// debt, up to the policy's [`max_debt`](crate::Policy::max_debt).
    ///
    /// Returns whether it is what happens: `false` if the policy was settled before, or if this
    /// request holds nothing of it.
    pub fn settle(&self, policy: &str, units: u64) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Units(units)))
    }

    /// Releases all that is held of a policy: the request costs nothing. Returns what
    /// [`settle`](Self::settle) does.
    pub fn release(&self, policy: &str) -> bool {
        let holds = self.holds(policy);
        holds.is_some_and(|holds| holds.settle(policy, Settlement::Release))
    }

    /// Returns the units that are charged to a policy if nobody settles it. `None` if this request
    /// holds nothing of it: the policy does not hold, did not apply, or the store failed and it let
    /// the request pass.
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
