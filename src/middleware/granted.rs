//! What the response to an admitted request is told.

use std::mem;

use http::{Extensions, Response};

use super::{headers::Fields, settings::Settings};
use crate::Decision;

/// What the response to an admitted request is told.
pub(super) struct Granted {
    pub(super) fields: Fields,
    /// The decision, where it goes: it is too large to be moved about.
    pub(super) extensions: Extensions,
}

impl Granted {
    /// Takes the decision, and puts a copy among those of the request.
    pub(super) fn new(
        decision: &mut Decision,
        request: &mut Extensions,
        settings: &Settings,
    ) -> Self {
        let known = settings.known_policy_field(decision);
        let fields = Fields::of(decision, &settings.answers, known);
        if let Some(outer) = request.insert(decision.clone()) {
            decision.put_within(&outer);
            request.insert(decision.clone());
        }
        let mut extensions = Extensions::new();
        extensions.insert(decision.take());
        Self { fields, extensions }
    }

    #[inline]
    pub(super) fn tell<B>(self, response: &mut Response<B>) {
        let status = response.status();
        self.fields.add_to_forwarded(status, response.headers_mut());
        // A layer inside may have put the decisions of both there: that stays.
        let inside = mem::replace(response.extensions_mut(), self.extensions);
        response.extensions_mut().extend(inside);
    }
}
