//! The text of a change.

use serde::{Deserialize, Serialize};

use super::entry::{Action, Entry, Last, Subject, milliseconds, time};
use crate::{Fingerprint, List, Quota, lists, overrides::Mode};

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
    mode: Option<String>,
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
            Subject::Key(policy, key) => (Kind::Listed, Some(policy), Some(key), None),
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
                Some(Action::Mode { mode, .. }) => Some(mode.name().to_owned()),
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
        let has_texts = texts.iter().any(|text| text.is_some());
        for text in texts.into_iter().flatten() {
            check_text(text)?;
        }
        let at = |ms: u64| time(ms).ok_or_else(|| format!("{ms} is no time of this century"));
        let until = self.until_ms.map(at).transpose()?;
        let created = at(self.changed_ms)?;
        let policy = self.policy.as_deref().map(super::policy_name).transpose();
        let policy = policy.map_err(|error| error.to_string())?;
        let key = self.key.as_deref().map(fingerprint).transpose()?;
        let ip = self.ip.as_deref().map(lists::range).transpose();
        let ip = ip.map_err(|error| error.to_string())?;
        let ip = ip.map(|range| range.to_string());
        let quota = self.quota.as_deref().map(str::parse::<Quota>).transpose();
        let quota = quota.map_err(|error| error.to_string())?;
        let mode = self.mode.as_deref().map(mode).transpose()?;

        let list = match self.kind {
            Kind::Allow => Some(List::Allow),
            Kind::Deny => Some(List::Deny),
            _ => None,
        };
        let subject = match (self.kind, policy, key, ip) {
            (Kind::Override, Some(policy), Some(key), None) => Subject::Override(policy, key),
            (Kind::Ban, Some(policy), Some(key), None) => Subject::Ban(policy, key),
            (Kind::Mode, Some(policy), None, None) => Subject::Mode(policy),
            (Kind::Listed | Kind::Allow | Kind::Deny, Some(policy), Some(key), None) => {
                Subject::Key(policy, key)
            }
            (Kind::Listed | Kind::Allow | Kind::Deny, None, None, Some(range)) => {
                Subject::Ip(range)
            }
            _ => return Err(OTHER_FIELDS.to_owned()),
        };
        if self.removed {
            let is_bare = quota.is_none() && mode.is_none() && until.is_none() && !has_texts;
            let ms = self.changed_ms;
            return match is_bare && list.is_none() {
                true => Ok((subject, Last::Removed { ms })),
                false => Err(OTHER_FIELDS.to_owned()),
            };
        }
        let action = match (subject, list, quota, mode) {
            (Subject::Override(policy, caller), _, Some(quota), None) => Action::Override {
                policy,
                caller,
                quota,
            },
            (Subject::Ban(policy, caller), _, None, None) => {
                let action = Action::Ban { policy, caller };
                until.map(|_| action).ok_or("a ban without an end")?
            }
            (Subject::Mode(policy), _, None, Some(mode)) => Action::Mode { policy, mode },
            (Subject::Ip(range), Some(list), None, None) => Action::ListIp { list, range },
            (Subject::Key(policy, caller), Some(list), None, None) => Action::ListKey {
                list,
                policy,
                caller,
            },
            _ => return Err(OTHER_FIELDS.to_owned()),
        };
        let entry = Entry {
            action,
            until,
            created,
            author: self.author,
            reason: self.reason,
            label: self.label,
        };
        Ok((entry.action.subject(), Last::Made(entry)))
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

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::parse(text).ok_or_else(|| format!("{text:?} is no fingerprint of a key"))
}

fn mode(text: &str) -> Result<Mode, String> {
    let mut modes = [Mode::Enforce, Mode::Shadow, Mode::Off].into_iter();
    let mode = modes.find(|mode| mode.name() == text);
    mode.ok_or_else(|| format!("{text:?} is no mode"))
}
