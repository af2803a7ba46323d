//! The control document: `control` lists its entries, and `ban`, `unban`, `override`, `clear` and
//! `mode` change them.

use clap::Args;
use serde_json::{Value, json};
use tower_throttle::{
    Quota,
    control::{Action, Change, End, Entry, Mode},
};

use crate::{
    answer::{Answer, rows},
    error::Result,
    live::{Live, OneCaller, Place},
    time::{end, moment},
};

#[derive(Args, Debug)]
pub(crate) struct Ban {
    #[command(flatten)]
    caller: OneCaller,
    #[command(flatten)]
    entry: NewEntry,
}

#[derive(Args, Debug)]
pub(crate) struct Override {
    #[command(flatten)]
    caller: OneCaller,
    /// The quota of the caller, such as "100 per second".
    #[arg(long)]
    quota: Quota,
    #[command(flatten)]
    entry: NewEntry,
}

#[derive(Args, Debug)]
pub(crate) struct SetMode {
    #[command(flatten)]
    place: Place,
    /// The name of the policy.
    policy: String,
    /// Deny callers that are over the limit, count only, or do not even count. `default` is the
    /// mode that file or code set.
    #[arg(value_parser = ["enforce", "shadow", "off", "default"])]
    mode: String,
    #[command(flatten)]
    entry: NewEntry,
}

/// The parts of a new entry in addition to its change.
#[derive(Args, Debug)]
struct NewEntry {
    /// When it ends: a time from now such as `7d`, or a date such as `2026-12-24` or
    /// `2026-12-24T08:00:00Z`. Default: when it is removed. A ban needs an end.
    #[arg(long, visible_alias = "for", value_name = "WHEN", value_parser = end)]
    until: Option<End>,
    /// The caller's name for people. Of the key, only a hash is kept.
    #[arg(long)]
    label: Option<String>,
    /// Who makes the change.
    #[arg(long)]
    author: Option<String>,
    /// Why: a ticket, for example.
    #[arg(long, value_name = "REASON")]
    because: Option<String>,
}

impl Ban {
    pub(crate) async fn run(&self) -> Result<Answer> {
        let until = self.entry.until.ok_or("name its end, as `--for 1h`")?;
        let (live, caller) = self.caller.open(None).await?;
        let change = live.control.ban(&self.caller.policy, caller, until);
        self.entry.make(&live, change).await
    }
}

impl Override {
    pub(crate) async fn run(&self) -> Result<Answer> {
        let (live, caller) = self.caller.open(Some(self.quota)).await?;
        let name = &*self.caller.policy;
        let policies = live.inspect.policies();
        if let Some(policy) = policies.iter().find(|policy| policy.name == name) {
            policy.check_override(&self.quota)?;
        }
        let change = live.control.override_quota(name, caller, self.quota);
        self.entry.make(&live, change).await
    }
}

impl SetMode {
    pub(crate) async fn run(&self) -> Result<Answer> {
        let name = &*self.policy;
        let live = self.place.open(Some(name), None).await?;
        let mode = match &*self.mode {
            "enforce" => Mode::Enforce,
            "shadow" => Mode::Shadow,
            "off" => Mode::Off,
            _ => return Ok(removed(live.control.clear_mode(name).await?)),
        };
        let change = live.control.set_mode(name, mode);
        self.entry.make(&live, change).await
    }
}

pub(crate) async fn unban(caller: &OneCaller) -> Result<Answer> {
    let (live, fingerprint) = caller.open(None).await?;
    let was_banned = live.control.unban(&caller.policy, fingerprint).await?;
    Ok(removed(was_banned))
}

pub(crate) async fn clear(caller: &OneCaller) -> Result<Answer> {
    let (live, fingerprint) = caller.open(None).await?;
    let had_quota = live.control.clear_override(&caller.policy, fingerprint);
    Ok(removed(had_quota.await?))
}

fn removed(is_changed: bool) -> Answer {
    let text = match is_changed {
        true => "the entry is removed",
        false => "the control document has no such entry; nothing was changed",
    };
    Answer::fine(text, json!({ "changed": is_changed })).fine_if(is_changed)
}

impl NewEntry {
    /// Makes a change, and shows its entry.
    async fn make(&self, live: &Live, mut change: Change) -> Result<Answer> {
        if let Some(until) = self.until {
            change = change.until(until);
        }
        if let Some(label) = &self.label {
            change = change.label(label);
        }
        if let Some(author) = &self.author {
            change = change.author(author);
        }
        if let Some(reason) = &self.because {
            change = change.because(reason);
        }
        change.await?;
        let made = live.control.entries().last().map(entry_json);
        let text = rows("changed", made.as_slice(), &ENTRY_FIELDS);
        let json = json!({ "changed": true, "entry": made });
        Ok(Answer::fine(text, json))
    }
}

pub(crate) async fn list(place: &Place) -> Result<Answer> {
    let live = place.open(None, None).await?;
    let entries: Vec<_> = live.control.entries().iter().map(entry_json).collect();
    let text = match entries.is_empty() {
        true => "no entries".to_owned(),
        false => rows("entry", &entries, &ENTRY_FIELDS),
    };
    let version = live.control.status().version;
    let json = json!({ "version": version, "entries": entries });
    Ok(Answer::fine(text, json))
}

/// The fields of an entry that are printed for people.
#[rustfmt::skip]
pub(crate) const ENTRY_FIELDS: [&str; 10] = [
    "kind", "policy", "fingerprint", "quota", "mode", "ip", "label", "until", "author", "reason",
];

pub(crate) fn entry_json(entry: &Entry) -> Value {
    let mut json = match &entry.action {
        Action::Override {
            policy,
            caller,
            quota,
            ..
        } => json!({
            "kind": "override",
            "policy": policy,
            "fingerprint": caller.to_string(),
            "quota": quota.to_string(),
        }),
        Action::Ban { policy, caller, .. } => {
            json!({ "kind": "ban", "policy": policy, "fingerprint": caller.to_string() })
        }
        Action::Mode { policy, mode, .. } => {
            json!({ "kind": "mode", "policy": policy, "mode": mode.name() })
        }
        Action::ListIp { list, range, .. } => json!({ "kind": list.name(), "ip": range }),
        Action::ListKey {
            list,
            policy,
            caller,
            ..
        } => json!({
            "kind": list.name(),
            "policy": policy,
            "fingerprint": caller.to_string(),
        }),
        _ => json!({ "kind": "other" }),
    };
    json["until"] = entry.until.map(moment).into();
    json["created"] = moment(entry.created).into();
    json["author"] = entry.author.clone().into();
    json["reason"] = entry.reason.clone().into();
    json["label"] = entry.label.clone().into();
    json
}
