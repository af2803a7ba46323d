//! `control`: what operators have changed.

use serde_json::{Value, json};
use tower_throttle::{
    List,
    control::{Action, Entry, Mode},
};

use crate::{
    answer::{Answer, Failure},
    arguments::Place,
    live::Live,
    time::moment,
};

pub(crate) async fn run(place: &Place) -> Result<Answer, Failure> {
    let live = Live::open(place).await?;
    let (entries, status) = (live.control.entries(), live.control.status());
    let mut lines: Vec<_> = entries.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("no entries".to_owned());
    }
    let json = json!({
        "version": status.version,
        "entries": entries.iter().map(json).collect::<Vec<_>>(),
    });
    Ok(Answer::fine(lines.join("\n"), json))
}

/// Describes an entry in one line.
pub(crate) fn line(entry: &Entry) -> String {
    let mut line = what(&entry.action);
    if let Some(label) = &entry.label {
        line.push_str(&format!(" ({label})"));
    }
    match entry.until {
        Some(until) => line.push_str(&format!(", until {}", moment(until))),
        None => line.push_str(", until it is removed"),
    }
    if let Some(author) = &entry.author {
        line.push_str(&format!(", by {author}"));
    }
    if let Some(reason) = &entry.reason {
        line.push_str(&format!(": {reason}"));
    }
    line
}

fn what(action: &Action) -> String {
    match action {
        Action::Override {
            policy,
            caller,
            quota,
            ..
        } => {
            format!("policy {policy:?}: caller {caller} has {quota}")
        }
        Action::Ban { policy, caller, .. } => {
            format!("policy {policy:?}: caller {caller} is banned")
        }
        Action::Mode { policy, mode, .. } => format!("policy {policy:?}: mode {}", word(*mode)),
        Action::ListIp { list, range, .. } => format!("{} list: {range}", list_word(*list)),
        Action::ListKey { list, key, .. } => format!("{} list: caller {key}", list_word(*list)),
        other => format!("{other:?}"),
    }
}

/// Describes an entry for programs.
pub(crate) fn json(entry: &Entry) -> Value {
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
        Action::Ban { policy, caller, .. } => json!({
            "kind": "ban",
            "policy": policy,
            "fingerprint": caller.to_string(),
        }),
        Action::Mode { policy, mode, .. } => json!({
            "kind": "mode",
            "policy": policy,
            "mode": word(*mode),
        }),
        Action::ListIp { list, range, .. } => json!({ "kind": list_word(*list), "ip": range }),
        Action::ListKey { list, key, .. } => json!({
            "kind": list_word(*list),
            "fingerprint": key.to_string(),
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

pub(crate) const fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

pub(crate) const fn list_word(list: List) -> &'static str {
    match list {
        List::Allow => "allow",
        List::Deny => "deny",
    }
}
