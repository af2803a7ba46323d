//! What a file may say: all fields, with their forms and defaults.
//!
//! These tables are the one home of that. The check of a file, the JSON Schema and the reference
//! in `docs/configuration-reference.md` come from them. A test compares them with the methods of the
//! builders.

mod layer;
mod lists;
mod policy;
mod read;
mod store;

use super::form::{Form, Known, Table};

/// The newest version of the file that this crate reads.
pub(super) const VERSION: u64 = 1;

/// The whole file.
pub(super) static FILE: Table = Table::new(
    "file",
    "The file itself.",
    &[
        Known::new(
            "version",
            &Form::Whole(1, VERSION),
            "The version of the form of this file.",
        )
        .required(),
        Known::new(
            "store",
            &Form::Table(&store::STORE),
            "Where buckets are kept.",
        )
        .default("in memory")
        .code(&["RateLimitLayerBuilder::store", "LimiterBuilder::store"]),
        Known::new(
            "client_ip",
            &Form::Table(&read::CLIENT_IP),
            "What the key `client_ip` means: the client's address behind trusted proxies.",
        )
        .default("no key may be `client_ip`")
        .code(&["key::client_ip"]),
        Known::new(
            "peer",
            &Form::Table(&read::PEER),
            "What the key `peer` means: the address of the connection.",
        )
        .code(&["key::peer"]),
        Known::new(
            "lists",
            &Form::Table(&lists::LISTS),
            "Callers that are not limited, and callers that are denied.",
        )
        .default("none")
        .code(&["RateLimitLayerBuilder::lists", "LimiterBuilder::lists"]),
        Known::new(
            "policy",
            &Form::Tables(&Form::Table(&policy::POLICY)),
            "The policies, in the order in which clients read them.",
        )
        .required()
        .code(&["RateLimitLayerBuilder::policy", "LimiterBuilder::policy"]),
        Known::new(
            "layer",
            &Form::Map {
                of: "layer",
                form: &Form::Table(&layer::LAYER),
            },
            "The layers, by name.",
        )
        .default("one layer `default` with all policies")
        .code(&["RateLimitLayer::builder"]),
        Known::new(
            "limiter",
            &Form::Map {
                of: "limiter",
                form: &Form::Table(&layer::LIMITER),
            },
            "The limiters for use without HTTP, by name.",
        )
        .default("none")
        .code(&["Limiter::builder"]),
    ],
);
