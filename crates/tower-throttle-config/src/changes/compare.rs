//! Compares two versions of a file, part by part.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Change, Effect, FieldChange};
use crate::{
    Config, DEFAULT_LAYER,
    document::Document,
    tables::{Key, KeyTable, KeyWord, Policy, QuotaOrTiers},
    text::write,
};
use tower_throttle::Quota;

/// All kinds of parts, in the order of the changes.
const KINDS: [&str; 7] = [
    "policy",
    "layer",
    "limiter",
    "store",
    "client_ip",
    "peer",
    "lists",
];

/// A part of a file: a policy, a layer, a limiter, or another table.
struct Part<'a> {
    kind: &'static str,
    /// As TOML. Those with a dot are settings of other tables that decide which bucket a caller has.
    fields: BTreeMap<&'a str, String>,
    policy: Option<&'a Policy>,
}

pub(super) fn files(old: &Config, new: &Config) -> Vec<Change> {
    let (old, new) = (parts(&old.document), parts(&new.document));
    let all: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let changes = all.into_iter().map(|key| {
        let path = key.1.clone();
        let (effect, fields) = match (old.get(key), new.get(key)) {
            (Some(before), Some(after)) => before.compare(after),
            _ if path == "store" => (Effect::NeedsRestart, Vec::new()),
            (_, None) => (Effect::Gone, Vec::new()),
            (None, _) => (Effect::New, Vec::new()),
        };
        Change {
            path,
            effect,
            fields,
        }
    });
    changes.collect()
}

/// Returns all parts, by the number of their kind and their path.
fn parts(file: &Document) -> BTreeMap<(usize, String), Part<'_>> {
    let mut parts = BTreeMap::new();
    for (order, kind) in KINDS.into_iter().enumerate() {
        let value = file.value.get(kind).unwrap_or(&Value::Null);
        let named = |name: &str| (order, format!("{kind} {name:?}"));
        match (kind, value) {
            ("policy", Value::Array(values)) => {
                for (policy, value) in file.tables.policy.iter().zip(values) {
                    let mut part = Part::new(kind, value);
                    part.fields.extend(prefixes(file, policy));
                    part.policy = Some(policy);
                    parts.insert(named(&policy.name.0), part);
                }
            }
            ("layer" | "limiter", Value::Object(tables)) => {
                let tables = tables.iter();
                parts.extend(tables.map(|(name, value)| (named(name), Part::new(kind, value))));
            }
            ("layer", Value::Null) if file.tables.limiter.is_none() => {
                parts.insert(named(DEFAULT_LAYER), Part::new(kind, value));
            }
            (_, Value::Object(_)) => {
                parts.insert((order, kind.to_owned()), Part::new(kind, value));
            }
            _ => {}
        }
    }
    parts
}

/// Returns how the addresses in the key of a policy are grouped, and the setting that decides it.
fn prefixes<'a>(file: &Document, policy: &Policy) -> Vec<(&'a str, String)> {
    let (mut peer, mut client_ip) = (policy.key.is_none() && policy.shared != Some(true), false);
    let mut keys: Vec<&Key> = policy.key.iter().collect();
    while let Some(key) = keys.pop() {
        match key {
            Key::Word(word) => {
                peer |= matches!(word, KeyWord::Peer);
                client_ip |= matches!(word, KeyWord::ClientIp);
            }
            Key::FirstOf(parts)
            | Key::Table(KeyTable {
                all: Some(parts), ..
            }) => keys.extend(parts),
            // It has a prefix of its own.
            Key::Table(_) => {}
        }
    }
    let (of_peer, of_client_ip) = (file.tables.peer.as_ref(), file.tables.client_ip.as_ref());
    let of_peer = of_peer.and_then(|table| table.ipv6_prefix);
    let of_client_ip = of_client_ip.and_then(|table| table.ipv6_prefix);
    let settings = [
        (peer, "peer.ipv6_prefix", of_peer),
        (client_ip, "client_ip.ipv6_prefix", of_client_ip),
    ];
    let read = settings.into_iter().filter(|(is_read, ..)| *is_read);
    read.map(|(_, name, bits)| (name, bits.unwrap_or(64).to_string()))
        .collect()
}

impl<'a> Part<'a> {
    fn new(kind: &'static str, value: &'a Value) -> Self {
        let fields = value.as_object().into_iter().flatten();
        Self {
            kind,
            fields: fields
                .map(|(name, value)| (&**name, write(value)))
                .collect(),
            policy: None,
        }
    }

    fn compare(&self, after: &Self) -> (Effect, Vec<FieldChange>) {
        let names: BTreeSet<_> = self.fields.keys().chain(after.fields.keys()).collect();
        // Stores have passwords, and lists have the keys of callers.
        let is_hidden = ["store", "lists"].contains(&self.kind);
        let changed = names.into_iter().filter_map(|name| {
            let (before, after) = (self.fields.get(name), after.fields.get(name));
            let is_beside = name.contains('.') && (before.is_none() || after.is_none());
            let text = |text: &String| match is_hidden || *name == "partition_key_secret" {
                true => "..".to_owned(),
                false => text.clone(),
            };
            (before != after && !is_beside).then(|| FieldChange {
                name: (*name).to_owned(),
                before: before.map(text),
                after: after.map(text),
            })
        });
        let changed: Vec<_> = changed.collect();
        let mut fields = changed.iter();
        let effect = match self.kind {
            "store" if !changed.is_empty() => Effect::NeedsRestart,
            _ if fields.any(|field| self.moves_buckets(after, &field.name)) => Effect::StartsAfresh,
            _ => Effect::Kept,
        };
        (effect, changed)
    }

    /// Returns whether a changed field gives callers other buckets.
    fn moves_buckets(&self, after: &Self, field: &str) -> bool {
        let (Some(before), Some(after)) = (self.policy, after.policy) else {
            return false;
        };
        let is_key = ["key", "shared"].contains(&field) || field.contains('.');
        is_key || field == "quota" && has_other_buckets(&quotas(before), &quotas(after))
    }
}

/// The quota of each tier of a policy. The quota without a name is that of the policy, or of its
/// other callers.
type Quotas<'a> = BTreeMap<&'a str, Quota>;

fn quotas(policy: &Policy) -> Quotas<'_> {
    match &policy.quota {
        QuotaOrTiers::One(quota) => BTreeMap::from([("", quota.0)]),
        QuotaOrTiers::Tiers(table) => {
            let tiers = table.tiers.iter();
            let mut quotas: Quotas<'_> = tiers.map(|(name, quota)| (&**name, quota.0)).collect();
            let otherwise = quotas.get(&*table.otherwise.0).copied();
            quotas.extend(otherwise.map(|quota| ("", quota)));
            quotas
        }
    }
}

/// Returns whether a caller may have another bucket: the algorithm is in its name.
fn has_other_buckets(before: &Quotas<'_>, after: &Quotas<'_>) -> bool {
    let is_lost =
        |of: &Quotas<'_>, quota: &Quota| !of.values().any(|other| other.shares_buckets_with(quota));
    let of_tier = |(name, quota): (_, &Quota)| {
        let other = after.get(name);
        other.is_some_and(|other| !other.shares_buckets_with(quota))
    };
    before.iter().any(of_tier)
        || before.values().any(|quota| is_lost(after, quota))
        || after.values().any(|quota| is_lost(before, quota))
}
