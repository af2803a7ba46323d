//! What is read from a request: addresses, keys, conditions.

use crate::{
    form::{Form, Known, Table},
    word::{Argument, Word},
};

const PREFIX: Form = Form::Whole(1, 128);
const PREFIX_ABOUT: &str = "How many bits of an IPv6 address make one caller.";

pub(super) static CLIENT_IP: Table = Table::new(
    "client_ip",
    "The client's address behind trusted proxies.",
    &[
        Known::new(
            "trusted",
            &Form::List(&Form::Text),
            "The addresses and ranges of your proxies.",
        )
        .required()
        .code(&["key::client_ip"]),
        Known::new(
            "header",
            &Form::Words(&[
                Word::new("x_forwarded_for", "The header `X-Forwarded-For`."),
                Word::new("forwarded", "The header `Forwarded`."),
                Word::new("x_real_ip", "The header `X-Real-IP`."),
                Word::with("header:", Argument::Name, "Another header with addresses."),
            ]),
            "The header that your proxies write.",
        )
        .default("`x_forwarded_for`")
        .code(&[
            "key::ClientIp::from_x_forwarded_for",
            "key::ClientIp::from_forwarded",
            "key::ClientIp::from_x_real_ip",
            "key::ClientIp::from_header",
        ]),
        Known::new("ipv6_prefix", &PREFIX, PREFIX_ABOUT)
            .default("64")
            .code(&["key::ClientIp::ipv6_prefix"]),
    ],
);

pub(super) static PEER: Table = Table::new(
    "peer",
    "The address of the connection.",
    &[Known::new("ipv6_prefix", &PREFIX, PREFIX_ABOUT)
        .default("64")
        .code(&["key::Peer::ipv6_prefix"])],
);

static OTHER_PREFIX: Table = Table::new(
    "address",
    "An address with a prefix of its own.",
    &[Known::new("ipv6_prefix", &PREFIX, PREFIX_ABOUT)
        .required()
        .code(&["key::ClientIp::ipv6_prefix", "key::Peer::ipv6_prefix"])],
);

/// Who is asking. A list is the first of its keys that is there.
pub(super) static KEY: Form = Form::Either(&[
    Form::Words(&[
        Word::new("peer", "The address of the connection."),
        Word::new(
            "client_ip",
            "The client's address behind the proxies of `[client_ip]`.",
        ),
        Word::with("header:", Argument::Name, "The value of a header."),
        Word::new("bearer_token", "The token of the header `Authorization`."),
        Word::with("cookie:", Argument::Name, "The value of a cookie."),
        Word::new("route", "The route that axum matched."),
        Word::new("method", "The method of the request."),
        Word::new("global", "One key for all requests."),
        Word::with(
            "reader:",
            Argument::Name,
            "What a reader of the application returns.",
        ),
    ]),
    Form::List(&KEY),
    Form::Table(&KEY_TABLE),
]);

static KEY_TABLE: Table = Table::new(
    "key_of_parts",
    "A key of several parts, or an address with settings of its own.",
    &[
        Known::new("all", &Form::List(&KEY), "Keys that make one key together.").one(),
        Known::new(
            "client_ip",
            &Form::Table(&OTHER_PREFIX),
            "`client_ip` with another prefix.",
        )
        .one(),
        Known::new(
            "peer",
            &Form::Table(&OTHER_PREFIX),
            "`peer` with another prefix.",
        )
        .one(),
    ],
);

const TEXTS: Form = Form::Either(&[Form::Text, Form::List(&Form::Text)]);

/// Which requests something applies to: those that meet all conditions.
pub(super) static WHEN: Form = Form::Table(&WHEN_TABLE);

static WHEN_TABLE: Table = Table::new(
    "when",
    "Conditions on a request. All of them have to be met, and of a list one of its values.",
    &[
        Known::new(
            "method",
            &TEXTS,
            "Methods, as `GET`, which includes `HEAD`.",
        ),
        Known::new(
            "path",
            &TEXTS,
            "Paths. `*` stands for a part between slashes, `**` for any number of them.",
        ),
        Known::new("route", &TEXTS, "Routes as axum has them, `/users/{id}`."),
        Known::new("host", &TEXTS, "Names of the host that the request names."),
        Known::new(
            "header",
            &Form::Map {
                of: "header",
                form: &Form::Either(&[Form::True, Form::Text, Form::List(&Form::Text)]),
            },
            "Headers with one of these values, or with `true` for any value.",
        ),
        Known::new("not", &WHEN, "Conditions that are not to be met together."),
        Known::new(
            "reader",
            &Form::Reader("when"),
            "A condition that the application registers.",
        ),
    ],
);
