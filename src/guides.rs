//! The guides of this version. Start with [getting started](getting_started), or with the
//! [index by question](index).
//!
//! The same pages are in `docs/` of the repository. Their samples are compiled and run as tests.

#![cfg_attr(docsrs, doc(auto_cfg = false))]

macro_rules! guides {
    ($($(#[$cfg:meta])? $page:ident: $path:literal,)+) => {
        $(
            $(#[$cfg])?
            #[doc = include_str!($path)]
            pub mod $page {}
        )+
    };
}

/// The README, whose samples are tested with those of the guides.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}

// Pages that are only on docs.rs have samples with crates that this one does not depend on. They
// are compiled in `tests/peers`, in `benches/rivals` and in the packages.
guides! {
    algorithms: "../docs/algorithms.md",
    authentication: "../docs/authentication.md",
    authentication_gates: "../docs/authentication-gates.md",
    bans: "../docs/bans.md",
    behind_a_proxy: "../docs/behind-a-proxy.md",
    choosing_a_quota: "../docs/choosing-a-quota.md",
    coming_from: "../docs/coming-from.md",
    control: "../docs/control.md",
    costs_and_tiers: "../docs/costs-and-tiers.md",
    denied: "../docs/denied.md",
    for_your_clients: "../docs/for-your-clients.md",
    from_actix_limitation: "../docs/from-actix-limitation.md",
    from_redis_cell: "../docs/from-redis-cell.md",
    getting_started: "../docs/getting-started.md",
    headers: "../docs/headers.md",
    hot_keys: "../docs/hot-keys.md",
    hyper: "../docs/hyper.md",
    lists: "../docs/lists.md",
    load_tests: "../docs/load-tests.md",
    metrics: "../docs/metrics.md",
    questions: "../docs/questions.md",
    regions: "../docs/regions.md",
    routes: "../docs/routes.md",
    settling: "../docs/settling.md",
    shadow_mode: "../docs/shadow-mode.md",
    tenants: "../docs/tenants.md",
    testing: "../docs/testing.md",
    upgrading: "../docs/upgrading.md",
    waiting: "../docs/waiting.md",
    websockets: "../docs/websockets.md",
    when_not_to_limit: "../docs/when-not-to-limit.md",
    #[cfg(any(docsrs, feature = "testing"))] own_store: "../docs/own-store.md",
    #[cfg(docsrs)] admin: "../docs/admin.md",
    #[cfg(docsrs)] admin_api: "../docs/admin-api.md",
    #[cfg(docsrs)] admin_security: "../docs/admin-security.md",
    #[cfg(docsrs)] cli: "../docs/cli.md",
    #[cfg(docsrs)] comparison: "../docs/comparison.md",
    #[cfg(docsrs)] configuration: "../docs/configuration.md",
    #[cfg(docsrs)] configuration_reference: "../docs/configuration-reference.md",
    #[cfg(docsrs)] errors: "../docs/errors.md",
    #[cfg(docsrs)] from_axum_governor: "../docs/from-axum-governor.md",
    #[cfg(docsrs)] from_governor: "../docs/from-governor.md",
    #[cfg(docsrs)] from_tower_governor: "../docs/from-tower-governor.md",
    #[cfg(docsrs)] from_tower_limit: "../docs/from-tower-limit.md",
    #[cfg(docsrs)] from_tower_rate_limit_fred: "../docs/from-tower-rate-limit-fred.md",
    #[cfg(docsrs)] grpc: "../docs/grpc.md",
    #[cfg(docsrs)] guarantees: "../docs/guarantees.md",
    #[cfg(docsrs)] index: "../docs/README.md",
    #[cfg(docsrs)] outbound: "../docs/outbound.md",
    #[cfg(docsrs)] kubernetes: "../docs/kubernetes.md",
    #[cfg(docsrs)] logs: "../docs/logs.md",
    #[cfg(docsrs)] operating: "../docs/operating.md",
    #[cfg(docsrs)] production: "../docs/production.md",
    #[cfg(docsrs)] redis_down: "../docs/redis-down.md",
    #[cfg(docsrs)] reload: "../docs/reload.md",
    #[cfg(docsrs)] runbook: "../docs/runbook.md",
    #[cfg(docsrs)] servers: "../docs/servers.md",
    #[cfg(docsrs)] sizing: "../docs/sizing.md",
}
