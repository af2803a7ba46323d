//! The tables of a file, as serde reads them.
//!
//! Only these types define the form of a file. The [schema](crate::schema) is made from them and
//! their comments. A file is [checked](crate::check) by the schema before serde reads it. In a
//! comment, `Default: ..` is the value without the field.

mod layer;
mod policy;
mod requests;
mod store;
mod words;

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tower_throttle::{ConfigError, Quota, parse_duration};

use crate::place::FilePlace;

pub(crate) use self::{
    layer::{Layer, Limiter},
    policy::{Cost, Mode, ModeWord, Policy, QuotaOrTiers, SettleBy, StoreFailure},
    requests::{
        ClientAddress, ClientIp, HeaderValue, Key, KeyTable, KeyWord, ListedKey, ListedKeys, Lists,
        Peer, ProxyHeader, When,
    },
    store::Store,
};

/// The newest version of the file that this crate reads.
pub(crate) const VERSION: u64 = 1;

/// The file itself.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "Limits of tower-throttle")]
pub(crate) struct File {
    /// The version of the form of this file.
    #[expect(dead_code, reason = "the check has compared it")]
    #[schemars(range(min = 1, max = VERSION))]
    version: u64,
    /// Where buckets are kept. Default: in memory.
    pub(crate) store: Option<Store>,
    /// The meaning of the key `client_ip`: the client's address behind trusted proxies. Default: no
    /// key may be `client_ip`.
    pub(crate) client_ip: Option<ClientIp>,
    /// The meaning of the key `peer`: the address of the connection.
    pub(crate) peer: Option<Peer>,
    /// Callers that are not limited, and callers that are denied. Default: none.
    pub(crate) lists: Option<Lists>,
    /// The policies, in the order in which clients read them.
    pub(crate) policy: Vec<Policy>,
    /// The layers, by name. Default: one layer `default` with all policies.
    #[schemars(title = "a table with a name for each layer")]
    pub(crate) layer: Option<BTreeMap<String, Layer>>,
    /// The limiters for use without HTTP, by name. Default: none.
    #[schemars(title = "a table with a name for each limiter")]
    pub(crate) limiter: Option<BTreeMap<String, Limiter>>,
}

/// A text of one character or more.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "a text")]
pub(crate) struct Text(#[schemars(length(min = 1))] pub(crate) String);

/// A text in which `${NAME}` stands for a variable of the environment.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "a text with `${NAME}`")]
pub(crate) struct Variables(pub(crate) String);

/// A closure that the application registers under this name.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "the name of a reader")]
pub(crate) struct Reader(#[schemars(length(min = 1))] pub(crate) String);

/// A policy of this file.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "the name of a policy")]
pub(crate) struct PolicyName(#[schemars(length(min = 1))] pub(crate) String);

/// Only `true`: without it, the field is left out.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("const" = true))]
pub(crate) struct True(#[expect(dead_code, reason = "the check has compared it")] bool);

/// A whole number and a unit.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(title = "a duration such as \"30s\"")]
#[schemars(extend("pattern" = r"^\s*[0-9][0-9_]*\s*[A-Za-zµμ]+\s*$"))]
#[schemars(extend("examples" = ["50ms", "30s", "5 minutes"]))]
pub(crate) struct Time(#[schemars(with = "String")] pub(crate) Duration);

impl TryFrom<String> for Time {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        parse_duration(&text).map(Self)
    }
}

/// An algorithm and its numbers.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(title = "a quota such as \"10 per second, burst 20\"")]
#[schemars(extend("examples" = ["10 per second, burst 20", "fixed window of 1000 per day"]))]
pub(crate) struct QuotaText(#[schemars(with = "String")] pub(crate) Quota);

impl TryFrom<String> for QuotaText {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse().map(Self)
    }
}

/// One text or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Texts {
    One(Text),
    Several(Vec<Text>),
}

impl Texts {
    /// Returns each text, and where it is.
    pub(crate) fn all(&self, at: &FilePlace) -> Vec<(FilePlace, &str)> {
        match self {
            Self::One(text) => vec![(at.clone(), &text.0)],
            Self::Several(texts) => {
                let texts = texts.iter().enumerate();
                texts
                    .map(|(index, text)| (at.to(&index), &*text.0))
                    .collect()
            }
        }
    }
}
