//! From a builder to the settings of a layer.

use std::sync::Arc;

#[cfg(feature = "control")]
use arc_swap::ArcSwap;

use super::{
    builder::RateLimitLayerBuilder,
    headers::{Fields, HeaderFormat},
    layer::RateLimitLayer,
    plan::{Plan, Rule},
    settings::{ResponseSettings, Settings},
};
use crate::{
    ConfigError, MemoryStore,
    admission::wait_queue::MAX_WAITING,
    enforcement::Enforcement,
    metrics::Recorder,
    offenders::Offenders,
    overrides::SeenOverrides,
    policy::{cannot_lease, check_names, check_strikes},
    policy_name::limiter_name,
    store::handle::StoreHandle,
};
#[cfg(feature = "control")]
use crate::{
    control::Subscriber, lists::LoadedLists, overrides::Overrides, policy::check_overrides,
    telemetry,
};

impl RateLimitLayerBuilder {
    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        let layer = self.build_unsubscribed()?;
        #[cfg(feature = "control")]
        layer.subscribe();
        Ok(layer)
    }

    /// Builds a layer against which no control document is checked yet.
    pub(crate) fn build_unsubscribed(&self) -> Result<RateLimitLayer, ConfigError> {
        self.settings(None).map(RateLimitLayer::new_with)
    }

    /// Checks the settings. `former`: those that they replace, whose store, numbers and lists of
    /// denials go on.
    pub(super) fn settings(&self, former: Option<&Settings>) -> Result<Arc<Settings>, ConfigError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let format = self.response.format;
        if self.partition_secret.is_some() && format != HeaderFormat::Draft10 {
            return Err(ConfigError::new(
                "partition-key-unsupported",
                "`partition_key_secret(..)` with header fields that have no place for it; use `HeaderFormat::Draft10`, or drop `partition_key_secret(..)`",
            ));
        }
        if self.response.shadow_with_headers && format != HeaderFormat::Draft10 {
            return Err(ConfigError::new(
                "shadow-headers-unsupported",
                "`shadow_with_headers()` with header fields that do not name policies; use `HeaderFormat::Draft10`, or drop `shadow_with_headers()`",
            ));
        }
        if let Some(lists) = &self.lists {
            lists.load().validate()?;
        }
        let name = limiter_name(self.name.as_deref())?;
        let plan = self.plan()?;
        let names = plan.rules.iter().map(|rule| &rule.base.name);
        let observer = self.observer.clone();
        let recorder = Recorder::new(
            former.map(|former| &*former.recorder),
            name,
            names,
            observer,
        );
        let store = match former {
            Some(former) => former.store.clone(),
            None => self.store_handle()?,
        };
        store.report_to(&recorder);
        let offenders = match former {
            Some(former) => Arc::clone(&former.offenders),
            None => Offenders::new(store.memory().map(MemoryStore::clock)),
        };
        let settings = Settings {
            fields: plan
                .fields(
                    &self.response,
                    &SeenOverrides::default(),
                    store.is_followed(),
                )
                .intern(),
            plan,
            lists: self.lists.clone(),
            response: self.response.clone(),
            wait: self.wait,
            max_waiting: self.max_waiting.unwrap_or(MAX_WAITING),
            logged: former.map_or_else(Arc::default, |former| Arc::clone(&former.logged)),
            recorder,
            offenders,
            name_offender: self.name_offender.clone(),
            store,
        };
        Ok(match former {
            None => settings.shared(),
            // A name with other numbers than before has one quota, and not two.
            Some(_) => Arc::new(settings),
        })
    }

    fn store_handle(&self) -> Result<StoreHandle, ConfigError> {
        let store = self.store.clone();
        let store = StoreHandle::new(store.unwrap_or_else(|| Arc::new(MemoryStore::new())));
        #[cfg(feature = "control")]
        return store.follow(self.control.clone());
        #[cfg(not(feature = "control"))]
        Ok(store)
    }

    /// Checks the policies.
    fn plan(&self) -> Result<Plan, ConfigError> {
        let rule = |policy| Rule::new(policy, self.on_store_failure, self.shadow_all);
        let rules: Vec<Rule> = self.policies.iter().map(rule).collect::<Result<_, _>>()?;
        check_names(rules.iter().map(|rule| &rule.base.name))?;
        check_strikes(&rules.iter().map(|rule| &rule.base), self.wait.is_some())?;
        let leasing = rules.iter().find(|rule| rule.base.leases);
        if let (Some(_), Some(rule)) = (self.wait, leasing) {
            let error = cannot_lease("`wait_up_to(..)`");
            return Err(error.in_policy(&rule.base.name.text));
        }
        Ok(Plan {
            settles: rules.iter().any(|rule| rule.settle_by.is_some()),
            rules: rules.into(),
            when: self.when.clone(),
            partition_secret: self.partition_secret.clone(),
        })
    }
}

impl Plan {
    /// Returns whether a version of the control document sets the mode of a policy.
    #[inline]
    pub(super) fn has_modes(&self, overrides: &SeenOverrides) -> bool {
        let mut given = self.rules.iter();
        given.any(|rule| {
            let given = overrides.policy(&rule.base.name.text);
            given.is_some_and(|given| given.mode.is_some())
        })
    }

    /// Returns how the policies are announced to clients. `may_differ`: a control document may give
    /// some callers other quotas.
    pub(super) fn fields(
        &self,
        response: &ResponseSettings,
        overrides: &SeenOverrides,
        may_differ: bool,
    ) -> Fields {
        let announced = self.rules.iter().filter_map(|rule| {
            let given = overrides.policy(&rule.base.name.text);
            let enforcement = rule.base.enforcement_under(given)?;
            (enforcement != Enforcement::ForNone).then_some((rule, enforcement))
        });
        let is_known = |(rule, enforcement): (&Rule, Enforcement)| {
            rule.is_constant() && !enforcement.may_be_shadow()
        };
        let fields = if !response.shadow_with_headers && announced.clone().all(is_known) {
            let policies = announced.map(|(rule, _)| {
                let base = &rule.base;
                (base.name.clone(), base.demand.quota.clone())
            });
            let has_partition_keys = self.partition_secret.is_some();
            Fields::with_policies(
                response.format,
                policies.collect(),
                has_partition_keys,
                may_differ,
            )
        } else {
            Fields::new(response.format, response.shadow_with_headers)
        };
        // What clients do not see, they do not see while a policy is off, either.
        let settlers = self.rules.iter();
        let settlers = settlers.filter_map(|rule| rule.settle_by.as_ref());
        let hidden = settlers.filter_map(|settler| settler.0.hidden_field());
        fields.hiding(hidden.cloned())
    }
}

impl RateLimitLayer {
    /// Checks other settings for this layer and its services. They take effect when the result is
    /// called: a request has either the former settings or the new ones, for all of its way.
    ///
    /// The store, the numbers and the lists of denials go on; the builder's store does not matter.
    #[cfg(any(test, feature = "config"))]
    pub(crate) fn replacement(
        &self,
        builder: &RateLimitLayerBuilder,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        let current = Arc::clone(&self.settings);
        let settings = builder.settings(Some(&current.load()))?;
        Ok(move || current.store(settings))
    }

    /// Has each version of its control document checked against its policies.
    #[cfg(feature = "control")]
    pub(crate) fn subscribe(&self) {
        if let Some(control) = self.settings.load().store.control() {
            control.held().subscribe(&self.settings);
        }
    }

    /// Returns whether there is a clone of this layer, or a service of it.
    #[cfg(feature = "config")]
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.settings) > 1
    }
}

#[cfg(feature = "control")]
impl Subscriber for ArcSwap<Settings> {
    fn check(&self, overrides: &Overrides) -> Vec<String> {
        let settings = self.load();
        let (name, rules) = (settings.recorder.name(), settings.plan.rules.iter());
        let lists = LoadedLists::new(settings.lists.as_ref(), Some(&overrides.lists));
        if lists.is_some_and(|lists| lists.ignores_addresses()) {
            telemetry::listed_addresses_unread(name);
        }
        let conflicts = check_overrides(overrides, name, rules.map(|rule| &rule.base));
        let conflicts = conflicts.into_iter();
        conflicts
            .map(|error| format!("layer {name}: {error}"))
            .collect()
    }

    fn has_policy(&self, name: &str) -> bool {
        self.load().plan.rule(name).is_some()
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

            let replace = layer.replacement(&builder(2));
            let replace = replace.expect("valid");
            assert_eq!(
                ask().await.expect("infallible").status(),
                StatusCode::TOO_MANY_REQUESTS
            );
            replace();
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
