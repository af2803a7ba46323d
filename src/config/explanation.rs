//! What a file does with one request: [`Explanation`].

use crate::{Key, List, Quota};

/// What a layer of a file does with one request, from [`Config::explain`](super::Config::explain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The conditions of the layer. If one of them fails, the layer passes the request on.
    pub conditions: Vec<FoundCondition>,
    /// The list that decides. Then no policy is asked.
    pub list: Option<List>,
    /// Why the caller's address cannot be looked up in lists: the layer denies the request.
    pub address_error: Option<String>,
    /// The policies, in their order.
    pub policies: Vec<ExplainedPolicy>,
}

/// A condition of a file, and whether it holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundCondition {
    /// The condition as in the file, such as `path = "/api/**"`.
    pub text: String,
    /// Whether it holds. `None`: two servers could understand the request in different ways, so the
    /// limit applies.
    pub holds: Option<bool>,
}

/// What a policy of a file does with one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedPolicy {
    /// Its name.
    pub name: String,
    /// Its conditions.
    pub conditions: Vec<FoundCondition>,
    /// Its keys as in the file, such as `"header:x-api-key"`, each with what it finds: its key, or
    /// why there is none. The first that finds one counts. Empty for a shared policy.
    pub keys: Vec<(String, Result<Key, String>)>,
    /// The caller that it charges. `None` if the policy does not apply to the request.
    pub caller: Option<Key>,
    /// Whether that key is on the allow list: the policy is not asked.
    pub is_exempt: bool,
    /// Whether the request lacks a key and is denied for that.
    pub denies_missing_key: bool,
    /// What it charges, in units.
    pub cost: u64,
    /// The quota of this request.
    pub quota: Quota,
    /// Whether it denies this caller. Otherwise it is a shadow policy.
    pub is_enforced: bool,
}

impl Explanation {
    /// Returns whether the conditions of the layer let it limit the request.
    #[must_use]
    pub fn applies(&self) -> bool {
        applies(&self.conditions)
    }
}

impl ExplainedPolicy {
    /// Returns whether the conditions of the policy let it apply.
    #[must_use]
    pub fn applies(&self) -> bool {
        applies(&self.conditions)
    }
}

fn applies(conditions: &[FoundCondition]) -> bool {
    conditions
        .iter()
        .all(|condition| condition.holds != Some(false))
}
