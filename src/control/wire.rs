//! The text of a change.

use serde::{Deserialize, Serialize};

use super::entry::{Action, Entry, Last, Subject, milliseconds, time};
use crate::{Fingerprint, List, lists, overrides::Mode, policy_name::is_name};

/// The longest author, reason or label, in bytes.
pub(super) const LONGEST_TEXT: usize = 256;

/// A change as JSON has it. An unknown field is an error: a process that left it out would
/// remove it from the document with its next change.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireChange {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    changed_ms: u64,
    /// Whether the entry was removed. Then it has none of the following fields.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<WireMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
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
    /// Removed from either list.
    Listed,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireMode {
    Enforce,
    Shadow,
    Off,
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

/// Returns the text of a change.
#[expect(clippy::expect_used, reason = "texts and numbers become JSON")]
pub(super) fn text(subject: &Subject, last: &Last) -> String {
    serde_json::to_string(&WireChange::new(subject, last)).expect("a text")
}

impl WireChange {
    fn new(subject: &Subject, last: &Last) -> Self {
        let (kind, policy, key, ip) = match subject {
            Subject::Override(policy, key) => (Kind::Override, Some(policy), Some(key), None),
            Subject::Ban(policy, key) => (Kind::Ban, Some(policy), Some(key), None),
            Subject::Mode(policy) => (Kind::Mode, Some(policy), None, None),
            Subject::Ip(range) => (Kind::Listed, None, None, Some(range)),
            Subject::Key(key) => (Kind::Listed, None, Some(key), None),
        };
        let entry = last.entry();
        let action = entry.map(|entry| &entry.action);
        let text =
            |text: fn(&Entry) -> &Option<String>| entry.and_then(|entry| text(entry).clone());
        Self {
            kind: match action {
                Some(Action::ListIp { list, .. } | Action::ListKey { list, .. }) => match list {
                    List::Allow => Kind::Allow,
                    List::Deny => Kind::Deny,
                },
                _ => kind,
            },
            policy: policy.cloned(),
            key: key.map(ToString::to_string),
            ip: ip.cloned(),
            changed_ms: last.ms(),
            removed: entry.is_none(),
            quota: match action {
                Some(Action::Override { quota, .. }) => Some(quota.to_string()),
                _ => None,
            },
            mode: match action {
                Some(Action::Mode { mode, .. }) => Some((*mode).into()),
                _ => None,
            },
            until_ms: entry.and_then(|entry| entry.until).map(milliseconds),
            author: text(|entry| &entry.author),
            reason: text(|entry| &entry.reason),
            label: text(|entry| &entry.label),
        }
    }

    /// Reads the change. The error states what is wrong.
    pub(super) fn read(self) -> Result<(Subject, Last), String> {
        let texts = [&self.author, &self.reason, &self.label];
        for text in texts.into_iter().flatten() {
            check_text(text)?;
        }
        let at = |ms: u64| time(ms).ok_or_else(|| format!("{ms} is no time of this century"));
        let until = self.until_ms.map(at).transpose()?;
        let created = at(self.changed_ms)?;
        let subject = self.subject()?;
        let Some(action) = self.action(&subject)? else {
            let ms = self.changed_ms;
            return Ok((subject, Last::Removed { ms }));
        };
        if until.is_none() && matches!(action, Action::Ban { .. }) {
            return Err("a ban without an end".to_owned());
        }
        let entry = Entry {
            action,
            until,
            created,
            author: self.author,
            reason: self.reason,
            label: self.label,
        };
        Ok((subject, Last::Made(entry)))
    }

    fn subject(&self) -> Result<Subject, String> {
        let policy = self.policy.as_deref().map(policy_name).transpose()?;
        let key = self.key.as_deref().map(fingerprint).transpose()?;
        let ip = self.ip.as_deref().map(lists::range).transpose();
        let ip = ip.map_err(|error| error.to_string())?;
        Ok(match (self.kind, policy, key, ip) {
            (Kind::Override, Some(policy), Some(key), None) => Subject::Override(policy, key),
            (Kind::Ban, Some(policy), Some(key), None) => Subject::Ban(policy, key),
            (Kind::Mode, Some(policy), None, None) => Subject::Mode(policy),
            (Kind::Allow | Kind::Deny | Kind::Listed, None, Some(key), None) => Subject::Key(key),
            (Kind::Allow | Kind::Deny | Kind::Listed, None, None, Some(ip)) => {
                Subject::Ip(ip.to_string())
            }
            _ => return Err(OTHER_FIELDS.to_owned()),
        })
    }

    /// Returns what the entry does. `None`: it was removed.
    fn action(&self, subject: &Subject) -> Result<Option<Action>, String> {
        let list = match self.kind {
            Kind::Allow => Some(List::Allow),
            Kind::Deny => Some(List::Deny),
            _ => None,
        };
        let has_texts = [&self.author, &self.reason, &self.label]
            .iter()
            .any(|text| text.is_some());
        let fields = (self.removed, &self.quota, self.mode, list);
        Ok(Some(match (subject.clone(), fields) {
            (_, (true, None, None, None)) if self.until_ms.is_none() && !has_texts => {
                return Ok(None);
            }
            (Subject::Override(policy, caller), (false, Some(quota), None, _)) => {
                let quota = quota.parse().map_err(|error| format!("{error}"))?;
                Action::Override {
                    policy,
                    caller,
                    quota,
                }
            }
            (Subject::Ban(policy, caller), (false, None, None, _)) => {
                Action::Ban { policy, caller }
            }
            (Subject::Mode(policy), (false, None, Some(mode), _)) => {
                let mode = mode.into();
                Action::Mode { policy, mode }
            }
            (Subject::Ip(range), (false, None, None, Some(list))) => Action::ListIp { list, range },
            (Subject::Key(key), (false, None, None, Some(list))) => Action::ListKey { list, key },
            _ => return Err(OTHER_FIELDS.to_owned()),
        }))
    }
}

const OTHER_FIELDS: &str = "a change with the fields of another kind";

/// Checks an author, a reason or a label.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    if text.len() > LONGEST_TEXT {
        let length = text.len();
        return Err(format!(
            "a text of {length} bytes; the longest has {LONGEST_TEXT}"
        ));
    }
    match text.chars().any(char::is_control) {
        true => Err("a text has control characters".to_owned()),
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
