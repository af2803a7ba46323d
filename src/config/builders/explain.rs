//! What a layer of a file does with one request.

use super::{
    addresses::Addresses,
    conditions, keys, lists,
    policy::{self, FilePolicy, chosen_by},
    reading::Reading,
    tiers,
};
use crate::{
    Key, List, OnStoreFailure, RequestHead,
    config::{
        Config, ConfigErrors,
        explanation::{ExplainedPolicy, Explanation, FoundCondition},
        field::Field,
        text,
        tree::{Node, Value},
    },
    key::{KeyError, KeyExtractor, Reason},
};

impl Config {
    /// Explains what a layer does with a request: which policies apply, who is charged, and how
    /// much. It asks no store, and charges nothing. `None` if the file has no such layer.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::{RequestHead, config::Config};
    ///
    /// let config = Config::from_toml(r#"
    ///     version = 1
    ///     [[policy]]
    ///     name = "burst"
    ///     quota = "10 per second"
    ///     key = "header:x-api-key"
    ///     when = { path = "/api/**" }
    /// "#)?;
    /// let request = Request::get("/login").body(())?;
    /// let explained = config.explain("default", &RequestHead::from(&request))?.ok_or("no layer")?;
    /// let condition = &explained.policies[0].conditions[0];
    /// assert_eq!((&*condition.text, condition.holds), (r#"path = "/api/**""#, Some(false)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the mistakes in policies and lists.
    pub fn explain(
        &self,
        layer: &str,
        head: &RequestHead<'_>,
    ) -> Result<Option<Explanation>, ConfigErrors> {
        let file = self.root();
        let mut reading = Reading::new(&self.readers);
        let addresses = Addresses::read(&mut reading, &file);
        let policies = policy::read_all(&mut reading, &file, &addresses);
        let lists = lists::read(&mut reading, &file, &addresses, self.path());
        let is_known = self.names().layers.iter().any(|name| name == layer);
        let layers = file.get("layer");
        let mut tables = layers.iter().flat_map(Field::entries);
        let table = tables.find(|(name, _)| *name == layer);
        let table = table.map(|(_, table)| table);
        // The layer of a file without layers has no table.
        let table = table.or_else(|| file.empty_entry("layer", layer));
        let Some(table) = table.filter(|_| is_known) else {
            reading.problems.finish(self.file_name().as_ref())?;
            return Ok(None);
        };
        let chosen = chosen_by(&table, &policies).into_iter();
        let explained = chosen.filter_map(|policy| explain(&mut reading, policy, &addresses, head));
        let mut explained: Vec<_> = explained.collect();
        if table.is_set("shadow_all") {
            for policy in &mut explained {
                policy.is_enforced = false;
            }
        }
        let conditions = found(&mut reading, &table, head);
        reading.problems.finish(self.file_name().as_ref())?;
        let uses_lists = table.get("lists").and_then(|field| field.flag());
        let lists = lists.filter(|_| uses_lists.unwrap_or(true));
        let listed = lists.map_or(Ok(None), |lists| listed(&lists, head, &mut explained));
        Ok(Some(Explanation {
            conditions,
            list: listed.as_ref().ok().copied().flatten(),
            address_error: listed.err().map(|error| in_words(&error)),
            policies: explained,
        }))
    }
}

fn explain(
    reading: &mut Reading<'_>,
    policy: &FilePolicy<'_>,
    addresses: &Addresses,
    head: &RequestHead<'_>,
) -> Option<ExplainedPolicy> {
    let table = &policy.field;
    let of_layers = &policy.policies.as_ref()?.of_layers;
    let conditions = found(reading, table, head);
    let amount = tiers::read(reading, &table.get("quota")?)?;
    let quota = amount.quota_of(policy.name, head);
    let compiled = of_layers.compile(OnStoreFailure::default()).ok()?;
    let keys = keys_of(reading, table, addresses, head);
    let key = whole_key(reading, table, addresses, head)?;
    let applies = conditions
        .iter()
        .all(|condition| condition.holds != Some(false));
    let (caller, denies_missing_key) = match key {
        _ if !applies => (None, false),
        Ok(key) => (Some(key), false),
        Err(error) => in_place_of(&error, table),
    };
    Some(ExplainedPolicy {
        name: policy.name.to_owned(),
        conditions,
        is_enforced: caller
            .as_ref()
            .is_none_or(|key| compiled.is_enforced_for(key, compiled.enforcement)),
        keys: keys
            .into_iter()
            .map(|(text, key)| (text, key.map_err(|error| in_words(&error))))
            .collect(),
        caller,
        is_exempt: false,
        denies_missing_key,
        cost: cost_of(reading, table, head, compiled.demand.cost),
        quota,
    })
}

/// Returns the key of a request that lacks one, and whether it is denied.
fn in_place_of(error: &KeyError, table: &Field<'_>) -> (Option<Key>, bool) {
    let choice = table.get("on_missing_key");
    let choice = choice.as_ref().and_then(Field::word).map(|(word, _)| word);
    match (choice, error.is_missing()) {
        (Some("skip"), true) => (None, false),
        (Some("share"), true) => (Some(Key::missing()), false),
        _ => (None, true),
    }
}

fn cost_of(reading: &Reading<'_>, table: &Field<'_>, head: &RequestHead<'_>, cost: u64) -> u64 {
    let by = table.get("cost").filter(|cost| cost.table().is_some());
    let by = by.and_then(|cost| cost.get("by"));
    let by = by.as_ref().and_then(Field::text);
    let reader = by.and_then(|name| reading.readers.cost.get(name));
    reader.map_or(cost, |reader| (reader.0)(head))
}

/// Returns the key that a policy reads. `None` after a mistake.
pub(super) fn whole_key(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    addresses: &Addresses,
    head: &RequestHead<'_>,
) -> Option<Result<Key, KeyError>> {
    if table.is_set("shared") {
        return Some(Ok(Key::everyone()));
    }
    Some(match table.get("key") {
        Some(key) => keys::read(reading, &key, addresses)?.extract(head),
        None => addresses.peer.extract(head),
    })
}

type FoundKey = (String, Result<Key, KeyError>);

/// Asks each key of a policy by itself, to say which one counts.
fn keys_of(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    addresses: &Addresses,
    head: &RequestHead<'_>,
) -> Vec<FoundKey> {
    if table.is_set("shared") {
        return Vec::new();
    }
    let Some(key) = table.get("key") else {
        return vec![("peer".to_owned(), addresses.peer.extract(head))];
    };
    let items = key.items();
    let found = items.iter().filter_map(|item| {
        let extractor = keys::read(reading, item, addresses)?;
        Some((text::write(item.node), extractor.extract(head)))
    });
    found.collect()
}

/// Asks each condition of a table by itself.
fn found(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    head: &RequestHead<'_>,
) -> Vec<FoundCondition> {
    let Some(when) = table.get("when") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in when.node.entries() {
        let alone = Node {
            value: Value::Table(vec![entry.clone()]),
            place: entry.place,
        };
        let field = Field {
            node: &alone,
            form: when.form,
            path: when.path.clone(),
        };
        found.push(FoundCondition {
            text: format!("{} = {}", entry.name, text::write(&entry.node)),
            holds: conditions::read(reading, &field).holds(head),
        });
    }
    found
}

/// Finds the list of a request's caller, and which policies its keys exempt it from, as a layer does.
fn listed(
    lists: &crate::Lists,
    head: &RequestHead<'_>,
    policies: &mut [ExplainedPolicy],
) -> Result<Option<List>, KeyError> {
    let entries = lists.load();
    if let Some(reader) = entries.address_reader() {
        if let Some(list) = entries.find_address(reader.address(head)?) {
            return Ok(Some(list));
        }
    }
    let list_of = |policy: &ExplainedPolicy| entries.find_key(policy.caller.as_ref()?);
    if policies
        .iter()
        .any(|policy| list_of(policy) == Some(List::Deny))
    {
        return Ok(Some(List::Deny));
    }
    for policy in policies.iter_mut() {
        policy.is_exempt = list_of(policy) == Some(List::Allow);
    }
    let is_limited = |policy: &ExplainedPolicy| {
        policy.denies_missing_key || (policy.caller.is_some() && !policy.is_exempt)
    };
    let is_exempt = policies.iter().any(|policy| policy.is_exempt);
    Ok((is_exempt && !policies.iter().any(is_limited)).then_some(List::Allow))
}

fn in_words(error: &KeyError) -> String {
    match error.reason() {
        Reason::Missing(missing) => missing.to_string(),
        Reason::Misconfigured(advice) => advice.to_string(),
    }
}
