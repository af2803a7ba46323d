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
    path: String,
    /// As TOML. Those with a dot are settings of other tables that decide which bucket a caller has.
    fields: BTreeMap<&'a str, String>,
    policy: Option<&'a Policy>,
}

pub(super) fn files(old: &Config, new: &Config) -> Vec<Change> {
    let (old, new) = (parts(&old.document), parts(&new.document));
    let find =
        |parts: &[Part<'_>], part: &Part<'_>| parts.iter().position(|one| one.path == part.path);
    let kept = old.iter().map(|before| {
        let after = find(&new, before).and_then(|index| new.get(index));
        (before.kind, before.compare(after))
    });
    let added = new.iter().filter(|after| find(&old, after).is_none());
    let added = added.map(|after| (after.kind, after.change(Effect::New)));
    let mut changes: Vec<_> = kept.chain(added).collect();
    changes.sort_by_key(|(kind, _)| KINDS.iter().position(|known| known == kind));
    changes.into_iter().map(|(_, change)| change).collect()
}

fn parts(file: &Document) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let policies = file.tables.policy.iter();
    for (policy, value) in policies.zip(file.value["policy"].as_array().into_iter().flatten()) {
        let mut part = Part::new("policy", Some(&policy.name.0), value);
        part.fields.extend(prefixes(file, policy));
        parts.push(Part {
            policy: Some(policy),
            ..part
        });
    }
    for kind in KINDS.into_iter().filter(|kind| *kind != "policy") {
        let value = &file.value[kind];
        match (kind, value.as_object()) {
            ("layer" | "limiter", Some(tables)) => {
                parts.extend(
                    tables
                        .iter()
                        .map(|(name, value)| Part::new(kind, Some(name), value)),
                );
            }
            ("layer", None) if file.tables.limiter.is_none() => {
                parts.push(Part::new(kind, Some(DEFAULT_LAYER), value));
            }
            (_, Some(_)) => parts.push(Part::new(kind, None, value)),
            (_, None) => {}
        }
    }
    parts
}

/// Returns how the addresses in the key of a policy are grouped, by the setting that says so.
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
    let tables = &file.tables;
    let of_peer = tables.peer.as_ref().and_then(|table| table.ipv6_prefix);
    let of_client_ip = tables
        .client_ip
        .as_ref()
        .and_then(|table| table.ipv6_prefix);
    let settings = [
        (peer, "peer.ipv6_prefix", of_peer),
        (client_ip, "client_ip.ipv6_prefix", of_client_ip),
    ];
    let read = settings.into_iter().filter(|(is_read, ..)| *is_read);
    read.map(|(_, name, bits)| (name, bits.unwrap_or(64).to_string()))
        .collect()
}

impl<'a> Part<'a> {
    fn new(kind: &'static str, name: Option<&str>, value: &'a Value) -> Self {
        let fields = value.as_object().into_iter().flatten();
        Self {
            kind,
            path: name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name:?}")),
            fields: fields
                .map(|(name, value)| (&**name, write(value)))
                .collect(),
            policy: None,
        }
    }

    fn change(&self, effect: Effect) -> Change {
        Change {
            path: self.path.clone(),
            effect: if self.kind == "store" {
                Effect::NeedsRestart
            } else {
                effect
            },
            fields: Vec::new(),
        }
    }

    fn compare(&self, after: Option<&Self>) -> Change {
        let Some(after) = after else {
            return self.change(Effect::Gone);
        };
        let mut change = self.change(Effect::Kept);
        let names: BTreeSet<_> = self.fields.keys().chain(after.fields.keys()).collect();
        for name in names {
            let values = (self.fields.get(name), after.fields.get(name));
            let is_beside = name.contains('.') && (values.0.is_none() || values.1.is_none());
            if values.0 != values.1 && !is_beside {
                change.fields.push(self.field(name, values));
            }
        }
        if self.kind == "store" && change.fields.is_empty() {
            change.effect = Effect::Kept;
        } else if change
            .fields
            .iter()
            .any(|field| self.moves_buckets(after, &field.name))
        {
            change.effect = Effect::StartsAfresh;
        }
        change
    }

    /// Returns whether a changed field gives callers other buckets.
    fn moves_buckets(&self, after: &Self, field: &str) -> bool {
        let (Some(before), Some(after)) = (self.policy, after.policy) else {
            return false;
        };
        let is_key = ["key", "shared"].contains(&field) || field.contains('.');
        is_key || field == "quota" && has_other_buckets(&quotas(before), &quotas(after))
    }

    fn field(
        &self,
        name: &str,
        (before, after): (Option<&String>, Option<&String>),
    ) -> FieldChange {
        // Stores have passwords, and lists have the keys of callers.
        let is_shown = !["store", "lists"].contains(&self.kind) && name != "partition_key_secret";
        let text = |text: &String| {
            if is_shown {
                text.clone()
            } else {
                "..".to_owned()
            }
        };
        FieldChange {
            name: name.to_owned(),
            before: before.map(text),
            after: after.map(text),
        }
    }
}

/// The quota of each tier of a policy. That without a name is of the policy, or of its other callers.
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
