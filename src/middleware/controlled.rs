//! Layers that follow a control document.

use std::sync::{Arc, Weak};

use super::{builder::RateLimitLayerBuilder, layer::RateLimitLayer, settings::Settings};
#[cfg(feature = "admin")]
use crate::util::current::SettingsId;
use crate::{
    ConfigError, Key,
    control::{Control, Subscriber},
    overlay::Overlay,
    util::current::{Current, Replaceable},
};

impl RateLimitLayerBuilder {
    /// Builds a layer that follows a document.
    pub(super) fn build_controlled(
        mut self,
        control: &Control,
    ) -> Result<RateLimitLayer, ConfigError> {
        // It would keep itself.
        self.control = None;
        let layer = self.build_replaceable(&Overlay::default())?;
        let everyone = layer.settings.load().store.fingerprint(&Key::everyone());
        control.check_secret(everyone)?;
        if let Some(settings) = layer.settings.downgrade() {
            let builder = self;
            let following = Arc::new(Following { builder, settings });
            control.held().subscribe(&following);
            // The document is followed for as long as the layer lives.
            layer.settings.keep(Arc::new((following, control.clone())));
        }
        Ok(layer)
    }
}

/// What makes the settings of a layer anew for each version of a document. The layer keeps it.
struct Following {
    builder: RateLimitLayerBuilder,
    settings: Weak<Replaceable<Settings>>,
}

impl Following {
    fn layer(&self) -> Option<RateLimitLayer> {
        let settings = self.settings.upgrade()?;
        Some(RateLimitLayer::new_with(Current::Replaceable(settings)))
    }
}

impl Subscriber for Following {
    fn apply(&self, overlay: &Arc<Overlay>) -> Vec<String> {
        let Some(layer) = self.layer() else {
            return Vec::new();
        };
        let replaced = layer.replacement(&self.builder, overlay);
        let replaced = replaced.map(|replace| replace());
        let settings = layer.settings.load();
        let not_taken = replaced
            .err()
            .into_iter()
            .chain(settings.plan.not_taken.clone());
        let name = settings.recorder.name();
        not_taken
            .map(|error| format!("layer {name}: {error}"))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        let Some(layer) = self.layer() else {
            return false;
        };
        let settings = layer.settings.load();
        let mut rules = settings.plan.rules.iter().chain(&settings.plan.off);
        rules.any(|rule| *rule.base.name.text == *name)
    }

    #[cfg(feature = "admin")]
    fn settings(&self) -> Vec<SettingsId> {
        vec![Weak::clone(&self.settings).into()]
    }
}
