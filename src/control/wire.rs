//! The text of an entry.

use serde::{Deserialize, Serialize};

use super::entry::{Action, Entry, milliseconds, time};
use crate::{Fingerprint, List, lists, overlay::Mode, policy_name::is_name};

/// The longest author, reason or label, in bytes.
pub(super) const LONGEST_TEXT: usize = 256;

/// An entry as JSON has it. An unknown field is an error: a process that left it out would
/// remove it from the document with its next change.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireEntry {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<WireMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
    created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Override,
    Ban,
    Mode,
    Allow,
    Deny,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireMode {
    Enforce,
    Shadow,
    Off,
}

impl From<&Entry> for WireEntry {
    fn from(entry: &Entry) -> Self {
        let mut wire = Self {
            kind: Kind::Ban,
            policy: entry.action.policy().map(str::to_owned),
            key: None,
            ip: None,
            quota: None,
            mode: None,
            until_ms: entry.until.map(milliseconds),
            created_ms: milliseconds(entry.created),
            author: entry.author.clone(),
            reason: entry.reason.clone(),
            label: entry.label.clone(),
        };
        match &entry.action {
            Action::Override { caller, quota, .. } => {
                wire.kind = Kind::Override;
                wire.key = Some(caller.to_string());
                wire.quota = Some(quota.to_string());
            }
            Action::Ban { caller, .. } => wire.key = Some(caller.to_string()),
            Action::Mode { mode, .. } => {
                wire.kind = Kind::Mode;
                wire.mode = Some((*mode).into());
            }
            Action::ListIp { list, range } => {
                wire.kind = (*list).into();
                wire.ip = Some(range.clone());
            }
            Action::ListKey { list, key } => {
                wire.kind = (*list).into();
                wire.key = Some(key.to_string());
            }
        }
        wire
    }
}

impl From<List> for Kind {
    fn from(list: List) -> Self {
        match list {
            List::Allow => Self::Allow,
            List::Deny => Self::Deny,
        }
    }
}

impl From<Mode> for WireMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Enforce,
            Mode::Shadow => Self::Shadow,
            Mode::Off => Self::Off,
        }
    }
}

impl From<WireMode> for Mode {
    fn from(mode: WireMode) -> Self {
        match mode {
            WireMode::Enforce => Self::Enforce,
            WireMode::Shadow => Self::Shadow,
            WireMode::Off => Self::Off,
        }
    }
}

impl WireEntry {
    /// Reads the entry. The error says what is wrong.
    pub(super) fn read(self) -> Result<Entry, String> {
        let texts = [&self.author, &self.reason, &self.label];
        for text in texts.into_iter().flatten() {
            check_text(text)?;
        }
        let at = |ms: u64| time(ms).ok_or_else(|| format!("{ms} is no time of this century"));
        let until = self.until_ms.map(at).transpose()?;
        let created = at(self.created_ms)?;
        let action = self.action()?;
        if until.is_none() && matches!(action, Action::Ban { .. }) {
            return Err("a ban without an end".to_owned());
        }
        Ok(Entry {
            action,
            until,
            created,
            author: self.author,
            reason: self.reason,
            label: self.label,
        })
    }

    fn action(&self) -> Result<Action, String> {
        let fields = (&self.policy, &self.key, &self.ip, &self.quota, self.mode);
        Ok(match (self.kind, fields) {
            (Kind::Override, (Some(policy), Some(key), None, Some(quota), None)) => {
                Action::Override {
                    policy: policy_name(policy)?,
                    caller: fingerprint(key)?,
                    quota: quota.parse().map_err(|error| format!("{error}"))?,
                }
            }
            (Kind::Ban, (Some(policy), Some(key), None, None, None)) => Action::Ban {
                policy: policy_name(policy)?,
                caller: fingerprint(key)?,
            },
            (Kind::Mode, (Some(policy), None, None, None, Some(mode))) => Action::Mode {
                policy: policy_name(policy)?,
                mode: mode.into(),
            },
            (Kind::Allow, (None, key, ip, None, None)) => listed(List::Allow, key, ip)?,
            (Kind::Deny, (None, key, ip, None, None)) => listed(List::Deny, key, ip)?,
            _ => return Err("an entry with the fields of another kind".to_owned()),
        })
    }
}

fn listed(list: List, key: &Option<String>, ip: &Option<String>) -> Result<Action, String> {
    match (key, ip) {
        (Some(key), None) => Ok(Action::ListKey {
            list,
            key: fingerprint(key)?,
        }),
        (None, Some(ip)) => {
            let range = lists::range(ip).map_err(|error| error.to_string())?;
            let range = range.to_string();
            Ok(Action::ListIp { list, range })
        }
        _ => Err("a list has either keys or addresses".to_owned()),
    }
}

/// Checks an author, a reason or a label.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    if text.len() > LONGEST_TEXT {
        let length = text.len();
        return Err(format!(
            "a text of {length} bytes; the longest has {LONGEST_TEXT}"
        ));
    }
    match text.chars().any(char::is_control) {
        true => Err(format!("{text:?} has control characters")),
        false => Ok(()),
    }
}

fn policy_name(name: &str) -> Result<String, String> {
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(format!("{name:?} is no name of a policy")),
    }
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::parse(text).ok_or_else(|| format!("{text:?} is no fingerprint of a key"))
}
