//! Limiters that follow a control document.

use std::sync::{Arc, Weak};

use super::{Limiter, LimiterBuilder, limits::Limits};
#[cfg(feature = "admin")]
use crate::util::current::SettingsId;
use crate::{
    ConfigError, Key,
    control::{Control, Subscriber},
    overlay::Overlay,
    util::current::{Current, Replaceable},
};

impl LimiterBuilder {
    /// Builds a limiter that follows a document.
    pub(super) fn build_controlled(mut self, control: &Control) -> Result<Limiter, ConfigError> {
        // It would keep itself.
        self.control = None;
        let limiter = self.build_replaceable(&Overlay::default())?;
        let everyone = limiter.limits.load().store.fingerprint(&Key::everyone());
        control.check_secret(everyone)?;
        if let Some(limits) = limiter.limits.downgrade() {
            let builder = self;
            let following = Arc::new(Following { builder, limits });
            control.held().subscribe(&following);
            // The document is followed for as long as the limiter lives.
            limiter.limits.keep(Arc::new((following, control.clone())));
        }
        Ok(limiter)
    }
}

/// What makes the settings of a limiter anew for each version of a document. The limiter keeps it.
struct Following {
    builder: LimiterBuilder,
    limits: Weak<Replaceable<Limits>>,
}

impl Following {
    fn limiter(&self) -> Option<Limiter> {
        let limits = self.limits.upgrade()?;
        Some(Limiter {
            limits: Current::Replaceable(limits),
        })
    }
}

impl Subscriber for Following {
    fn apply(&self, overlay: &Arc<Overlay>) -> Vec<String> {
        let Some(limiter) = self.limiter() else {
            return Vec::new();
        };
        let replaced = limiter.replacement(&self.builder, overlay);
        let replaced = replaced.map(|replace| replace());
        let limits = limiter.limits.load();
        let not_taken = replaced.err().into_iter().chain(limits.not_taken.clone());
        let name = limits.recorder.name();
        not_taken
            .map(|error| format!("limiter {name}: {error}"))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        let Some(limiter) = self.limiter() else {
            return false;
        };
        let limits = limiter.limits.load();
        let mut policies = limits.policies.iter().chain(&limits.off);
        policies.any(|policy| *policy.name.text == *name)
    }

    #[cfg(feature = "admin")]
    fn settings(&self) -> Vec<SettingsId> {
        vec![Weak::clone(&self.limits).into()]
    }
}
