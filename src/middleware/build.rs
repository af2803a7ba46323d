//! From a builder to a layer.

use std::sync::Arc;

use super::{
    builder::RateLimitLayerBuilder,
    headers::{Fields, HeaderFormat},
    layer::RateLimitLayer,
    rules::{RequestReaders, Rule},
    settings::Settings,
};
use crate::{
    ConfigError, Replacement,
    enforcement::Enforcement,
    engine::Live,
    overrides::SeenOverrides,
    policy::{Compiled, cannot_lease},
    util::interned::Interned,
};

impl RateLimitLayerBuilder {
    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        let settings = Live::new(self.settings(None)?);
        settings.subscribe();
        Ok(RateLimitLayer { settings })
    }

    /// Checks the settings. `former`: those that they replace. Their store, numbers and lists of
    /// denials are kept.
    fn settings(&self, former: Option<&Settings>) -> Result<Settings, ConfigError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.check_format()?;
        if let Some(lists) = &self.engine.lists {
            lists.load().validate()?;
        }
        let (policies, readers) = self.policies()?;
        let former_engine = former.map(|former| &former.engine);
        let engine = self
            .engine
            .build(policies, self.wait.is_some(), former_engine)?;
        let mut settings = Settings {
            settles: engine.policies.iter().any(|policy| policy.settles),
            is_plain: false,
            engine,
            readers,
            when: self.when.clone(),
            partition_secret: self.partition_secret,
            response: self.response.clone(),
            fields: Fields::new(self.response.format, false).intern(),
            wait: self.wait,
            logged: former.map_or_else(Arc::default, |former| Arc::clone(&former.logged)),
            name_offender: self.name_offender.clone(),
        };
        settings.is_plain = settings.rules().all(Rule::is_plain)
            && settings.wait.is_none()
            && settings.when.is_none()
            && settings.partition_secret.0.is_none();
        let is_followed = settings.engine.store.is_followed();
        let fields = settings.announced(&SeenOverrides::default(), is_followed);
        settings.fields = fields.intern();
        Ok(settings)
    }

    fn check_format(&self) -> Result<(), ConfigError> {
        let is_draft10 = self.response.format == HeaderFormat::Draft10;
        if self.partition_secret.0.is_some() && !is_draft10 {
            return Err(ConfigError::new(
                "partition-key-unsupported",
                "`partition_key_secret(..)` with header fields that have no place for it; use `HeaderFormat::Draft10`, or drop `partition_key_secret(..)`",
            ));
        }
        if self.response.shadow_with_headers && !is_draft10 {
            return Err(ConfigError::new(
                "shadow-headers-unsupported",
                "`shadow_with_headers()` with header fields that do not name policies; use `HeaderFormat::Draft10`, or drop `shadow_with_headers()`",
            ));
        }
        Ok(())
    }

    /// Checks the policies and what they read.
    fn policies(&self) -> Result<(Vec<Compiled>, Box<[RequestReaders]>), ConfigError> {
        let rules = self.engine.policies.iter().map(|policy| {
            let compiled = self.engine.compile(policy)?;
            if self.wait.is_some() && compiled.leases {
                let error = cannot_lease("`wait_up_to(..)`");
                return Err(error.in_policy(&compiled.name.text));
            }
            let readers = RequestReaders::new(policy, &compiled)?;
            Ok((compiled, readers))
        });
        let rules = rules.collect::<Result<Vec<_>, ConfigError>>()?;
        let (policies, readers): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
        Ok((policies, readers.into()))
    }
}

impl Settings {
    /// Returns how the policies are announced under a version of the control document.
    pub(super) fn fields_under(&self, overrides: &SeenOverrides) -> Interned<Fields> {
        let mut policies = self.engine.policies.iter();
        let has_modes = policies.any(|policy| {
            let given = overrides.policy(&policy.name.text);
            given.is_some_and(|given| given.mode.is_some())
        });
        match has_modes {
            false => self.fields.clone(),
            true => Interned::Shared(Arc::new(self.announced(overrides, true))),
        }
    }

    /// Returns how the policies are announced to clients. `may_differ`: a control document may give
    /// some callers other quotas.
    fn announced(&self, overrides: &SeenOverrides, may_differ: bool) -> Fields {
        let response = &self.response;
        let announced = self.engine.policies.iter().filter_map(|policy| {
            let given = overrides.policy(&policy.name.text);
            let enforcement = policy.enforcement_under(given)?;
            (enforcement != Enforcement::ForNone).then_some((policy, enforcement))
        });
        let is_known = |(policy, enforcement): (&Compiled, Enforcement)| {
            !policy.has_tiers && !enforcement.may_be_shadow()
        };
        let fields = if !response.shadow_with_headers && announced.clone().all(is_known) {
            let policies =
                announced.map(|(policy, _)| (policy.name.clone(), policy.demand.quota.clone()));
            let has_partition_keys = self.partition_secret.0.is_some();
            Fields::with_policies(
                response.format,
                policies.collect(),
                has_partition_keys,
                may_differ,
            )
        } else {
            Fields::new(response.format, response.shadow_with_headers)
        };
        // A field that is hidden from clients stays hidden while its policy is off.
        let settlers = self.readers.iter();
        let settlers = settlers.filter_map(|readers| readers.given.settle_by.as_ref());
        let hidden = settlers.filter_map(|settler| settler.0.hidden_field());
        fields.hiding(hidden.cloned())
    }
}

impl RateLimitLayer {
    /// Checks other settings for this layer, its clones and their services. They have no effect
    /// until the result is [applied](Replacement::apply).
    ///
    /// The layer keeps its store, whatever the builder has, and its numbers and lists of denials. A
    /// policy that keeps its name and its algorithm keeps what callers have used. If the builder has a
    /// control document, the layer follows it from then on. Otherwise it follows the former one. Keep
    /// the name, because numbers are published under it.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change.
    pub fn prepare(&self, builder: &RateLimitLayerBuilder) -> Result<Replacement, ConfigError> {
        let settings = builder.settings(Some(&self.settings.load()))?;
        Ok(self.settings.replacement(settings))
    }

    /// Returns whether another clone of this layer is alive, in a service for example. For a
    /// registry of layers, which may forget a layer that is not used anywhere else.
    pub fn is_shared(&self) -> bool {
        self.settings.is_shared()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use http::{Request, StatusCode};

    use crate::{FixedWindow, Policy, RateLimitLayer, RequestHead};

    #[test]
    fn buckets_and_numbers_go_on_under_new_settings() {
        let builder = |limit| {
            let policy = Policy::new("api", FixedWindow::per_hour(limit));
            RateLimitLayer::builder().policy(policy.shared())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let layer = builder(1).build().expect("valid");
            let service = tower::service_fn(async |_: Request<()>| {
                Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
            });
            let service = tower::Layer::layer(&layer, service);
            let ask = || tower::ServiceExt::oneshot(service.clone(), Request::new(()));
            let statuses = async || {
                [ask().await, ask().await].map(|answer| answer.expect("infallible").status())
            };
            assert_eq!(
                statuses().await,
                [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]
            );

            let replace = layer.prepare(&builder(2));
            let replace = replace.expect("valid");
            assert_eq!(
                ask().await.expect("infallible").status(),
                StatusCode::TOO_MANY_REQUESTS
            );
            replace.apply();
            // One unit was used before.
            assert_eq!(
                statuses().await,
                [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]
            );
            assert_eq!(layer.metrics().requests.total(), 5);
            let head = Request::new(());
            let buckets = layer
                .buckets(&RequestHead::from(&head))
                .expect("a shared bucket");
            assert_eq!(
                buckets.peek().await.expect("in memory").denied_by().count(),
                1
            );
        });
    }
}
