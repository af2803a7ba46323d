//! Compares two versions of a file, part by part.

use std::collections::BTreeMap;

use super::{Change, Effect, FieldChange};
use crate::{
    Config, DEFAULT_LAYER,
    text::{is_same, write},
    tree::{Entry, Node, Value},
};
use tower_throttle::Quota;

/// A part of a file: a policy, a layer, a limiter, or another table.
struct Part<'a> {
    kind: &'static str,
    /// Empty for a table of which there is one.
    name: &'a str,
    /// `None` for the layer of a file that has no table for one.
    node: Option<&'a Node>,
    /// The settings of other tables that decide which bucket a caller has.
    beside: BTreeMap<&'static str, String>,
}

/// Tables of which there is one.
const TABLES: [&str; 4] = ["store", "client_ip", "peer", "lists"];

pub(super) fn files(old: &Config, new: &Config) -> Vec<Change> {
    let (old, new) = (parts(&old.root), parts(&new.root));
    let mut changes = Vec::new();
    for before in &old {
        let after = new.iter().find(|after| after.is(before));
        changes.push((before.order(), before.compare(after)));
    }
    let added = new
        .iter()
        .filter(|after| !old.iter().any(|before| before.is(after)));
    changes.extend(added.map(|after| (after.order(), after.added())));
    changes.sort_by_key(|(order, _)| *order);
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Returns the parts of a file.
fn parts(file: &Node) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let node = |name| file.get(name).map(|entry: &Entry| &entry.node);
    if let Some(Value::List(policies)) = node("policy").map(|node| &node.value) {
        parts.extend(policies.iter().map(|policy| {
            Part {
                kind: "policy",
                name: policy
                    .get("name")
                    .and_then(|entry| entry.node.text())
                    .unwrap_or_default(),
                node: Some(policy),
                beside: prefixes(file, policy),
            }
        }));
    }
    for kind in ["layer", "limiter"] {
        let entries = node(kind).map_or(&[][..], Node::entries);
        parts.extend(entries.iter().map(|entry| Part {
            kind,
            name: &entry.name,
            node: Some(&entry.node),
            beside: BTreeMap::new(),
        }));
    }
    if node("layer").is_none() && node("limiter").is_none() {
        parts.push(Part {
            kind: "layer",
            name: DEFAULT_LAYER,
            node: None,
            beside: BTreeMap::new(),
        });
    }
    parts.extend(TABLES.into_iter().filter_map(|kind| {
        Some(Part {
            kind,
            name: "",
            node: Some(node(kind)?),
            beside: BTreeMap::new(),
        })
    }));
    parts
}

/// Returns how the addresses in the key of a policy are grouped, by the setting that says so.
fn prefixes(file: &Node, policy: &Node) -> BTreeMap<&'static str, String> {
    const SETTINGS: [(&str, &str); 2] = [
        ("client_ip", "client_ip.ipv6_prefix"),
        ("peer", "peer.ipv6_prefix"),
    ];
    let is_shared = policy
        .get("shared")
        .is_some_and(|entry| entry.node.value == Value::Flag(true));
    let key = policy.get("key").map(|entry| &entry.node);
    let reads = |word: &str| match key {
        Some(key) => has_word(key, word),
        None => word == "peer" && !is_shared,
    };
    let read = SETTINGS.into_iter().filter(|(word, _)| reads(word));
    let prefix = |word| Some(write(&file.get(word)?.node.get("ipv6_prefix")?.node));
    read.map(|(word, setting)| (setting, prefix(word).unwrap_or_else(default_prefix)))
        .collect()
}

fn default_prefix() -> String {
    "64".to_owned()
}

/// Returns whether a key is this word, or has it as a part. A part with a prefix of its own is a
/// table.
fn has_word(key: &Node, word: &str) -> bool {
    match &key.value {
        Value::Text(text) => text == word,
        Value::List(parts) => parts.iter().any(|part| has_word(part, word)),
        _ => key
            .get("all")
            .is_some_and(|parts| has_word(&parts.node, word)),
    }
}

impl Part<'_> {
    fn is(&self, other: &Part<'_>) -> bool {
        (self.kind, self.name) == (other.kind, other.name)
    }

    fn path(&self) -> String {
        match self.name.is_empty() && TABLES.contains(&self.kind) {
            true => self.kind.to_owned(),
            false => format!("{} {:?}", self.kind, self.name),
        }
    }

    fn entries(&self) -> &[Entry] {
        self.node.map_or(&[], Node::entries)
    }

    /// Returns where it is in the list of changes.
    fn order(&self) -> usize {
        let kinds = ["policy", "layer", "limiter"].into_iter().chain(TABLES);
        kinds.take_while(|kind| *kind != self.kind).count()
    }

    fn compare(&self, after: Option<&Self>) -> Change {
        let Some(after) = after else {
            return self.change(match self.kind {
                "store" => Effect::NeedsRestart,
                _ => Effect::Gone,
            });
        };
        let mut change = self.change(Effect::Kept);
        for entry in self.entries() {
            let found = after.node.and_then(|node| node.get(&entry.name));
            if !found.is_some_and(|found| is_same(&entry.node, &found.node)) {
                change.fields.push(self.field(Some(entry), found));
            }
        }
        let added = after.entries().iter();
        let added =
            added.filter(|entry| self.node.is_none_or(|node| node.get(&entry.name).is_none()));
        change
            .fields
            .extend(added.map(|entry| self.field(None, Some(entry))));
        let beside = self.beside.iter().filter_map(|(name, before)| {
            let after = after.beside.get(name)?;
            (before != after).then(|| FieldChange {
                name: (*name).to_owned(),
                before: Some(before.clone()),
                after: Some(after.clone()),
            })
        });
        change.fields.extend(beside);
        if !change.fields.is_empty() {
            change.effect = self.effect(after, &change);
        }
        change
    }

    fn added(&self) -> Change {
        self.change(match self.kind {
            "store" => Effect::NeedsRestart,
            _ => Effect::New,
        })
    }

    fn change(&self, effect: Effect) -> Change {
        Change {
            path: self.path(),
            effect,
            fields: Vec::new(),
        }
    }

    /// Returns what changed fields do to the whole.
    fn effect(&self, after: &Self, change: &Change) -> Effect {
        let has_changed = |name: &str| change.fields.iter().any(|field| field.name == name);
        let is_afresh = match self.kind {
            "store" => return Effect::NeedsRestart,
            "policy" => {
                self.beside.keys().any(|name| has_changed(name))
                    || has_changed("key")
                    || has_changed("shared")
                    || (has_changed("quota") && self.has_other_buckets(after))
            }
            _ => false,
        };
        match is_afresh {
            true => Effect::StartsAfresh,
            false => Effect::Kept,
        }
    }

    /// Returns whether a caller may have another bucket: the algorithm is in its name.
    fn has_other_buckets(&self, after: &Self) -> bool {
        let (before, after) = (self.quotas(), after.quotas());
        let is_lost = |of: &BTreeMap<_, Quota>, quota: &Quota| {
            !of.values().any(|other| other.shares_buckets_with(quota))
        };
        let of_tier = |(name, quota): (_, &Quota)| {
            after
                .get(name)
                .is_some_and(|other| !other.shares_buckets_with(quota))
        };
        before.iter().any(of_tier)
            || before.values().any(|quota| is_lost(&after, quota))
            || after.values().any(|quota| is_lost(&before, quota))
    }

    /// Returns the quota of each tier of a policy. That without a name is of the policy, or of
    /// its other callers.
    fn quotas(&self) -> BTreeMap<&str, Quota> {
        let read = |node: &Node| node.text()?.parse::<Quota>().ok();
        let Some(Entry { node: quota, .. }) = self.node.and_then(|node| node.get("quota")) else {
            return BTreeMap::new();
        };
        let tiers = quota.get("tiers").map(|entry| entry.node.entries());
        let tiers = tiers.unwrap_or_default().iter();
        let tiers = tiers.filter_map(|tier| Some((&*tier.name, read(&tier.node)?)));
        let mut quotas: BTreeMap<_, _> = tiers.collect();
        let otherwise = quota.get("otherwise").and_then(|entry| entry.node.text());
        let otherwise = otherwise.and_then(|name| quotas.get(name).copied());
        quotas.extend(otherwise.or_else(|| read(quota)).map(|of_all| ("", of_all)));
        quotas
    }

    fn field(&self, before: Option<&Entry>, after: Option<&Entry>) -> FieldChange {
        let name = before.or(after).map(|entry| entry.name.clone());
        let name = name.unwrap_or_default();
        // Stores have passwords, and lists have the keys of callers.
        let is_shown = !["store", "lists"].contains(&self.kind) && name != "partition_key_secret";
        let text = |entry: &Entry| match is_shown {
            true => write(&entry.node),
            false => "..".to_owned(),
        };
        FieldChange {
            before: before.map(text),
            after: after.map(text),
            name,
        }
    }
}
