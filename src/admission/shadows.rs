//! [`Shadows`]: the shadow policies of a request that waits.

use std::sync::Arc;

use crate::{charge::Charge, metrics::Recorder};

/// The shadow policies of a request, and the recorder that counts them. `None`: there are none, or
/// they were checked.
#[derive(Debug)]
pub(crate) struct Shadows(pub(super) Option<(Vec<Charge<'static>>, Arc<Recorder>)>);

impl Shadows {
    pub(crate) fn new(charges: &[Charge<'_>], recorder: &Arc<Recorder>) -> Self {
        let owned = || charges.iter().map(|charge| charge.clone().into_owned());
        Self((!charges.is_empty()).then(|| (owned().collect(), Arc::clone(recorder))))
    }
}
