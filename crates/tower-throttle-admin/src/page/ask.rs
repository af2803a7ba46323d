//! [`Ask`]: the form of a look-up.

use serde::Deserialize;
use tower_throttle::{Key, Quota, control::Caller};

use crate::{
    api::request::{Body, parse_caller},
    problem::{Code, Problem},
};

/// The form of a look-up.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ask {
    pub(super) caller: String,
    pub(super) policy: String,
    /// A caller that a table shows: its policy, perhaps its limiter, and its fingerprint, as JSON. It
    /// counts in place of `caller` and `policy`.
    pub(super) link: String,
    /// A policy, and the quota to look it up in, as JSON. It counts in place of `policy`.
    pub(super) tier: String,
}

impl Ask {
    /// Returns what is asked, and makes `caller` and `policy` what is shown of it.
    pub(super) fn question(&mut self) -> Result<Body, Problem> {
        let malformed = |_| Problem::from(Code::Malformed);
        let (mut limiter, mut tier) = (None, None);
        if !self.link.is_empty() {
            let fingerprint: String;
            (self.policy, limiter, fingerprint) =
                serde_json::from_str(&self.link).map_err(malformed)?;
            self.caller = format!("fingerprint:{fingerprint}");
        }
        if !self.tier.is_empty() {
            let quota: String;
            (self.policy, quota) = serde_json::from_str(&self.tier).map_err(malformed)?;
            tier = Some(quota.parse::<Quota>().map_err(|_| Code::Malformed)?);
        }
        let caller = parse_caller(&parts_of(&self.caller));
        let caller = caller.map_err(|what| Code::Malformed.because(format!("`caller`: {what}")))?;
        Ok(Body {
            caller: Some(caller),
            policy: (!self.policy.is_empty()).then(|| self.policy.clone()),
            limiter,
            tier,
            ..Body::default()
        })
    }

    /// Returns the parts of the caller as JSON of ASCII, of which nothing is replaced where it is
    /// written.
    pub(super) fn parts_as_json(&self) -> String {
        let json = serde_json::to_string(&parts_of(&self.caller)).unwrap_or_default();
        let escaped = json.encode_utf16().map(|unit| match u8::try_from(unit) {
            Ok(byte @ b' '..=b'~') => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        });
        escaped.collect()
    }
}

/// Returns the parts of a caller, if all words are some. Otherwise it is one text, without the spaces
/// around it, which are pasted in by mistake.
pub(super) fn parts_of(caller: &str) -> Vec<&str> {
    let words: Vec<&str> = caller.split_whitespace().collect();
    // A word that is not a part is a text of its own.
    let key = |word: &str| Caller::parse(&[word]).ok().and_then(|one| one.key());
    let is_part = |word: &&str| key(word) != Some(Key::from(*word));
    match words.len() > 1 && words.iter().all(is_part) {
        true => words,
        false => vec![caller.trim()],
    }
}
