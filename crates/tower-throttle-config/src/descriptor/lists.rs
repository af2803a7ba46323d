//! The table `[lists]`.

use crate::{
    form::{Form, Known, Table},
    word::{Argument, Word},
};

const ADDRESSES: Form = Form::List(&Form::Text);
const KEYS: Form = Form::List(&Form::Either(&[Form::Text, Form::Whole(0, u64::MAX)]));

pub(super) static LISTS: Table = Table::new(
    "lists",
    "Callers that are not limited, and callers that are denied.",
    &[
        Known::new("allow_ips", &ADDRESSES, "Addresses and ranges that are not limited.")
            .default("none")
            .code(&["Lists::allow_ips"]),
        Known::new("deny_ips", &ADDRESSES, "Addresses and ranges that are denied.")
            .default("none")
            .code(&["Lists::deny_ips"]),
        Known::new("allow_keys", &KEYS, "Keys that are not limited: texts, or numbers.")
            .default("none")
            .code(&["Lists::allow_keys"]),
        Known::new("deny_keys", &KEYS, "Keys that are denied: texts, or numbers.")
            .default("none")
            .code(&["Lists::deny_keys"]),
        Known::new("file", &Form::Text, "A file with more entries, one on each line. Its path starts at the folder of this file.")
            .default("none")
            .code(&["Lists::from_file"]),
        Known::new(
            "client_address",
            &Form::Words(&[
                Word::new("client_ip", "The client's address behind the proxies of `[client_ip]`."),
                Word::new("peer", "The address of the connection."),
                Word::with("reader:", Argument::Name, "What a reader of the application returns."),
            ]),
            "What reads the client's address.",
        )
        .default("`client_ip` if there is a table `[client_ip]`, otherwise `peer`")
        .code(&["Lists::client_address"]),
    ],
);
