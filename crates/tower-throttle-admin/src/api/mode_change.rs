//! Changes of a policy's mode.

use tower_throttle::{
    control::{Control, End, Mode},
    inspect::Inspect,
};

use super::{
    body::Fields,
    changed::{Changed, Event, Failed, Signature, control_for},
    look_up::with_policy,
    policies::{Policy, mode_entry, policies},
};
use crate::{
    Who,
    problem::{Code, Problem},
    shared::{Handle, Shared},
};

/// A change of a policy's mode.
pub(super) struct ModeChange {
    policy: String,
    /// `None`: as code or file say.
    mode: Option<Mode>,
    until: Option<End>,
    reason: Option<String>,
}

impl ModeChange {
    pub(super) fn set(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let change = Self {
            policy: fields.required_policy()?,
            mode: Some(fields.mode()?),
            until: fields.until()?,
            reason: fields.note("reason")?,
        };
        fields.end(&["policy", "mode", "for", "until_ms", "reason"])?;
        Ok(change)
    }

    pub(super) fn clear(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let policy = fields.required_policy()?;
        fields.end(&["policy"])?;
        Ok(Self {
            policy,
            mode: None,
            until: None,
            reason: None,
        })
    }

    /// Makes the change, and logs it.
    pub(super) async fn make(
        self,
        shared: Handle,
        who: Who,
    ) -> Result<Changed<Vec<Policy>>, Problem> {
        let control = match (self.check(&shared), self.entry_to_remove(&shared)) {
            // An entry can be removed whatever became of its policy.
            (Err(_), Some(control)) => control,
            (checked, _) => checked?,
        };
        let policies = || {
            let inspected = shared.targets.all();
            policies(&inspected, Some(control), Some(&self.policy))
        };
        let before = policies();
        let outcome = self.apply(control, &who).await;
        // The change has replaced their settings.
        let after = policies();
        let event = Event {
            who: &who,
            action: if self.mode.is_some() {
                "mode"
            } else {
                "clear-mode"
            },
            policy: Some(&self.policy),
            fingerprint: None,
        };
        let changed = event.log(outcome, &summary(&before), &summary(&after))?;
        Ok(Changed::new(&shared, changed, before, after))
    }

    /// Returns the document, or a problem if a policy cannot have the mode.
    fn check<'a>(&self, shared: &'a Shared) -> Result<&'a Control, Problem> {
        let inspected = with_policy(shared.targets.all(), &self.policy)?;
        let control = control_for(shared.control.as_ref(), &inspected)?;
        let states = inspected.iter().flat_map(Inspect::policies);
        let mut own = states.filter(|state| state.name == self.policy);
        let conflict = match self.mode {
            Some(Mode::Shadow) => own.find_map(|state| state.not_shadow),
            _ => None,
        };
        match conflict {
            Some(error) => Err(Problem::new(Code::CannotShadow).detail(error.to_string())),
            None => Ok(control),
        }
    }

    /// Returns the document, if this removes an entry that it has.
    fn entry_to_remove<'a>(&self, shared: &'a Shared) -> Option<&'a Control> {
        let control = shared.control.as_ref().filter(|_| self.mode.is_none())?;
        mode_entry(&control.entries(), &self.policy).map(|_| control)
    }

    async fn apply(&self, control: &Control, author: &Who) -> Result<bool, Failed> {
        let Some(mode) = self.mode else {
            return Ok(control.clear_mode(&self.policy).await?);
        };
        let mut entry = control.set_mode(&self.policy, mode);
        if let Some(until) = self.until {
            entry = entry.until(until);
        }
        let signature = Signature {
            author,
            reason: self.reason.as_deref(),
            label: None,
        };
        signature.sign(entry).await?;
        Ok(true)
    }
}

/// Describes the modes of a policy for the log.
fn summary(policies: &[Policy]) -> String {
    if policies.is_empty() {
        return "no policy of this name here".to_owned();
    }
    let each = policies.iter();
    let each = each.map(|policy| format!("{}/{}: {}", policy.limiter, policy.name, policy.mode));
    each.collect::<Vec<_>>().join("; ")
}
