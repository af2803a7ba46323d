//! A table `[[policy]]`.

use super::read::{KEY, WHEN};
use crate::{
    form::{Form, Known, Table},
    word::{Argument, Word},
};

pub(super) static POLICY: Table = Table::new(
    "policy",
    "A named quota, and its options.",
    &[
        Known::new(
            "name",
            &Form::Text,
            "The name, which clients read and which separates the buckets.",
        )
        .required()
        .code(&["Policy::new"]),
        Known::new(
            "quota",
            &Form::Either(&[Form::Quota, Form::Table(&TIERS)]),
            "How much: a quota, or one for each tier of callers.",
        )
        .required()
        .code(&["Policy::new", "Policy::with_quota", "Policy::quota_by"]),
        Known::new(
            "key",
            &KEY,
            "Who is asking. A list is the first of its keys that is there.",
        )
        .default("`peer`")
        .code(&["Policy::key"]),
        Known::new(
            "on_missing_key",
            &Form::Words(ON_MISSING_KEY),
            "What happens to a request without the key.",
        )
        .default("`deny`")
        .code(&["Policy::on_missing_key"]),
        Known::new(
            "shared",
            &Form::Flag,
            "Whether all callers share one bucket.",
        )
        .default("false")
        .code(&["Policy::shared"]),
        Known::new("when", &WHEN, "Which requests it applies to.")
            .default("all")
            .code(&["Policy::when"]),
        Known::new(
            "cost",
            &Form::Either(&[Form::Whole(0, u64::MAX), Form::Table(&COST)]),
            "How many units a request takes.",
        )
        .default("1")
        .code(&["Policy::cost", "Policy::cost_by"]),
        Known::new(
            "max_debt",
            &Form::Whole(0, u64::MAX),
            "How many units may be charged beyond the capacity.",
        )
        .default("what can be counted exactly")
        .code(&["Policy::max_debt"]),
        Known::new(
            "mode",
            &Form::Either(&[Form::Words(MODE), Form::Table(&SHARE)]),
            "Whether it denies, or only counts what it would deny.",
        )
        .default("`enforce`")
        .code(&["Policy::shadow", "Policy::enforce_for"]),
        Known::new(
            "on_store_failure",
            &Form::Words(ON_STORE_FAILURE),
            "What happens while the store cannot decide.",
        )
        .default("that of the layer or limiter")
        .code(&["Policy::on_store_failure"]),
        Known::new(
            "lease",
            &Form::Flag,
            "Whether processes lease units in advance.",
        )
        .default("false")
        .code(&["Policy::lease"]),
        Known::new(
            "settle_by",
            &Form::Either(&[Form::Words(SETTLE), Form::Table(&SETTLER)]),
            "What a request costs in the end, by its response.",
        )
        .default("its cost")
        .code(&["Policy::settle_by"]),
        Known::new(
            "hold_for",
            &Form::Duration,
            "How long units are held at least until it is known what a request costs.",
        )
        .default("60s with `settle_by`")
        .code(&["Policy::hold_for"]),
        Known::new(
            "strike_on_denial",
            &Form::Flag,
            "Whether denials by other policies are strikes of this penalty.",
        )
        .default("false")
        .code(&["Policy::strike_on_denial"]),
    ],
);

/// What happens while the store cannot decide.
pub(super) const ON_STORE_FAILURE: &[Word] = &[
    Word::new("local", "Each process decides by the whole quota."),
    Word::with(
        "share of ",
        Argument::Number,
        "Each process decides by its share of the quota.",
    ),
    Word::new("allow", "The policy is left out."),
    Word::new("deny", "The request is denied with 503."),
];

const ON_MISSING_KEY: &[Word] = &[
    Word::new("deny", "It is denied with 403."),
    Word::new("skip", "The policy does not apply to it."),
    Word::new("share", "All such requests share one bucket."),
];

const MODE: &[Word] = &[
    Word::new("enforce", "It denies."),
    Word::new("shadow", "It counts what it would deny."),
];

static SHARE: Table = Table::new(
    "mode",
    "Enforces a policy for a share of its callers.",
    &[Known::new(
        "enforce_for",
        &Form::Whole(1, 100),
        "The share of callers, in percent.",
    )
    .required()
    .code(&["Policy::enforce_for", "Percent::of_keys"])],
);

static TIERS: Table = Table::new(
    "quota",
    "A quota for each tier of callers.",
    &[
        Known::new(
            "by",
            &Form::Reader("quota"),
            "The reader that returns the name of a request's tier.",
        )
        .required()
        .code(&["Policy::quota_by"]),
        Known::new(
            "tiers",
            &Form::Map {
                of: "tier",
                form: &Form::Quota,
            },
            "The quota of each tier.",
        )
        .required(),
        Known::new(
            "otherwise",
            &Form::Text,
            "The tier of requests for which the reader returns no tier, or an unknown one.",
        )
        .required(),
    ],
);

static COST: Table = Table::new(
    "cost",
    "A cost for each request.",
    &[Known::new(
        "by",
        &Form::Reader("cost"),
        "The reader that returns the cost of a request.",
    )
    .required()
    .code(&["Policy::cost_by"])],
);

const SETTLE: &[Word] = &[Word::new(
    "failures",
    "Failures are charged, all else is free.",
)];

static SETTLER: Table = Table::new(
    "settle_by",
    "What a request costs in the end.",
    &[
        Known::new(
            "status",
            &Form::List(&Form::Whole(100, 999)),
            "Charges responses with one of these statuses. All else is free.",
        )
        .one()
        .code(&["settle::status"]),
        Known::new(
            "header",
            &Form::Text,
            "Charges as many units as this header of the response says.",
        )
        .one()
        .code(&["settle::header"]),
        Known::new("pass_on", &Form::Flag, "Whether clients see that header.")
            .beside(&["header"])
            .default("false")
            .code(&["settle::CostHeader::pass_on"]),
        Known::new(
            "body_bytes",
            &Form::Whole(1, u64::MAX),
            "Charges a unit for so many bytes of the response's body.",
        )
        .one()
        .code(&["settle::body_bytes"]),
        Known::new(
            "reader",
            &Form::Reader("settle"),
            "What the application registers says what a request costs.",
        )
        .one()
        .code(&["Policy::settle_by"]),
    ],
);
