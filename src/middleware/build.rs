//! From a builder to the settings of a layer.

use std::sync::Arc;

use super::{
    builder::RateLimitLayerBuilder,
    headers::{Fields, HeaderFormat},
    layer::RateLimitLayer,
    plan::{Plan, Rule},
    settings::Settings,
};
use crate::{
    ConfigError, MemoryStore,
    admission::wait_queue::MAX_WAITING,
    metrics::Recorder,
    offenders::Offenders,
    overlay::{Mode, Overlay},
    policy::{cannot_lease, check_names, check_strikes},
    policy_name::{Name, limiter_name},
    store::handle::StoreHandle,
    telemetry,
    util::current::Current,
};

impl RateLimitLayerBuilder {
    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that says what to change.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        #[cfg(feature = "control")]
        if let Some(control) = self.control.clone() {
            return self.build_controlled(&control);
        }
        let settings = self.settings(None, &Overlay::default())?;
        Ok(RateLimitLayer::new_with(Current::Fixed(settings)))
    }

    /// Checks the settings and builds a layer whose settings can be [replaced].
    ///
    /// [replaced]: RateLimitLayer::replacement
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn build_replaceable(
        &self,
        overlay: &Overlay,
    ) -> Result<RateLimitLayer, ConfigError> {
        let settings = self.settings(None, overlay)?;
        Ok(RateLimitLayer::new_with(Current::replaceable(settings)))
    }

    /// Checks the settings. `former`: those that they replace, whose store, numbers and lists of
    /// denials go on.
    pub(super) fn settings(
        &self,
        former: Option<&Settings>,
        overlay: &Overlay,
    ) -> Result<Arc<Settings>, ConfigError> {
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
        let (plan, names) = self.plan(overlay)?;
        if plan.rules.is_empty() {
            telemetry::all_policies_off(&name);
        }
        let lists = overlay.lists_beside(self.lists.as_ref());
        #[cfg(feature = "control")]
        if lists
            .as_ref()
            .is_some_and(|lists| lists.ignores_addresses())
        {
            telemetry::listed_addresses_unread(&name);
        }
        let recorder = match former {
            Some(former) => former
                .recorder
                .continued(name, &names, self.observer.clone()),
            None => Recorder::new(name, &names, self.observer.clone()),
        };
        let store = former.map_or_else(|| self.store_handle(), |former| former.store.clone());
        store.report_to(&recorder);
        let offenders = match former {
            Some(former) => Arc::clone(&former.offenders),
            None => Offenders::new(store.memory().map(MemoryStore::clock)),
        };
        let settings = Settings {
            fields: self.fields(&plan).intern(),
            plan,
            lists,
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

    fn store_handle(&self) -> StoreHandle {
        let store = self.store.clone();
        StoreHandle::new(store.unwrap_or_else(|| Arc::new(MemoryStore::new())))
    }

    /// Checks the policies. Returns their names, too, also of those that are off.
    fn plan(&self, overlay: &Overlay) -> Result<(Plan, Vec<Name>), ConfigError> {
        let rule = |policy| Rule::new(policy, self.on_store_failure, self.shadow_all);
        let rules: Vec<Rule> = self.policies.iter().map(rule).collect::<Result<_, _>>()?;
        check_names(rules.iter().map(|rule| &rule.base.name))?;
        check_strikes(&rules.iter().map(|rule| &rule.base), self.wait.is_some())?;
        let leasing = rules.iter().find(|rule| rule.base.leases);
        if let (Some(_), Some(rule)) = (self.wait, leasing) {
            let error = cannot_lease("`wait_up_to(..)`");
            return Err(error.in_policy(&rule.base.name.text));
        }
        let names = rules.iter().map(|rule| rule.base.name.clone()).collect();
        let rules = rules.into_iter().map(|rule| rule.with_overlay(overlay));
        let (rules, not_taken): (Vec<Rule>, Vec<Vec<ConfigError>>) = rules.unzip();
        let is_on = |rule: &Rule| overlay.mode(&rule.base.name.text) != Some(Mode::Off);
        // A handler reads its handle whether the policy is on or off.
        let settles = rules.iter().any(|rule| rule.settle_by.is_some());
        let (on, off): (Vec<_>, Vec<_>) = rules.into_iter().partition(is_on);
        let plan = Plan {
            settles,
            rules: on.into(),
            off: off.into(),
            not_taken: not_taken.concat(),
            when: self.when.clone(),
            partition_secret: self.partition_secret.clone(),
        };
        Ok((plan, names))
    }

    /// Returns how the policies are announced to clients.
    fn fields(&self, plan: &Plan) -> Fields {
        let format = self.response.format;
        let with_shadows = self.response.shadow_with_headers;
        let announced = plan.rules.iter().filter(|rule| !rule.is_shadow());
        let is_known = |rule: &Rule| rule.is_constant() && !rule.may_be_shadow();
        let fields = if !with_shadows && announced.clone().all(is_known) {
            let policies = announced
                .clone()
                .map(|rule| (&rule.base.name, *rule.base.demand.quota));
            let policies: Vec<_> = policies.collect();
            let has_overrides = plan.rules.iter().any(|rule| rule.base.has_overrides());
            let fields = Fields::with_policies(format, &policies, self.partition_secret.is_some());
            match has_overrides {
                true => fields.only_for(announced.map(|rule| rule.base.demand.quota.clone())),
                false => fields,
            }
        } else {
            Fields::new(format, with_shadows)
        };
        // What clients do not see, they do not see while a policy is off, either.
        let settlers = plan.rules.iter().chain(&plan.off);
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
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn replacement(
        &self,
        builder: &RateLimitLayerBuilder,
        overlay: &Overlay,
    ) -> Result<impl FnOnce() + use<>, ConfigError> {
        let current = self.settings.clone();
        let settings = builder.settings(Some(&current.load()), overlay)?;
        Ok(move || {
            let recorder = Arc::clone(&settings.recorder);
            current.replace(settings);
            recorder.take_over();
        })
    }
}

#[cfg(feature = "config")]
impl RateLimitLayer {
    /// Returns what of a control document cannot apply.
    pub(crate) fn not_taken(&self) -> Vec<ConfigError> {
        self.settings.load().plan.not_taken.clone()
    }

    /// Returns whether there is a clone of this layer, or a service of it.
    pub(crate) fn is_shared(&self) -> bool {
        self.settings.is_shared()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use http::{Request, StatusCode};

    use crate::{FixedWindow, Policy, RateLimitLayer, RequestHead, overlay::Overlay};

    #[test]
    fn buckets_and_numbers_go_on_under_new_settings() {
        let builder = |limit| {
            let policy = Policy::new("api", FixedWindow::per_hour(limit));
            RateLimitLayer::builder().policy(policy.shared())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let layer = builder(1)
                .build_replaceable(&Overlay::default())
                .expect("valid");
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

            let replace = layer.replacement(&builder(2), &Overlay::default());
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
