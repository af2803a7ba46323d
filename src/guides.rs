//! The samples of the README and the guides, compiled and run as tests. Those that use other crates
//! are compiled in `tests/peers`.

macro_rules! pages {
    ($($page:ident: $path:literal,)+) => {
        $(
            #[doc = include_str!($path)]
            mod $page {}
        )+
    };
}
pages! {
    readme: "../README.md",
    authentication: "../docs/authentication.md",
    authentication_gates: "../docs/authentication-gates.md",
    bans: "../docs/bans.md",
    behind_a_proxy: "../docs/behind-a-proxy.md",
    choosing_a_quota: "../docs/choosing-a-quota.md",
    costs_and_tiers: "../docs/costs-and-tiers.md",
    denied: "../docs/denied.md",
    from_tower_governor: "../docs/from-tower-governor.md",
    from_tower_rate_limit_fred: "../docs/from-tower-rate-limit-fred.md",
    headers: "../docs/headers.md",
    hot_keys: "../docs/hot-keys.md",
    lists: "../docs/lists.md",
    metrics: "../docs/metrics.md",
    routes: "../docs/routes.md",
    settling: "../docs/settling.md",
    shadow_mode: "../docs/shadow-mode.md",
    testing: "../docs/testing.md",
    waiting: "../docs/waiting.md",
}

pages! {
    control: "../docs/control.md",
}
