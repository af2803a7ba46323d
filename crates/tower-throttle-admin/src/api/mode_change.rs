//! Changes of a policy's mode.

use tower_throttle::{
    control::{Control, Mode},
    inspect::Inspect,
};

use super::{
    changed::{Asked, Changed, Failed, control_for, put},
    look_up::with_policy,
    policies::{Policy, mode_entry, policies},
    request::{ClearMode, SetMode},
};
use crate::{
    Who,
    problem::{Code, Problem},
    shared::{Handle, Shared},
};

impl SetMode {
    pub(super) async fn make(
        self,
        shared: Handle,
        who: Who,
    ) -> Result<Changed<Vec<Policy>>, Problem> {
        let control = self.check(&shared)?;
        let mut entry = control.set_mode(&self.policy, self.mode);
        if let Some(end) = self.r#for {
            entry = entry.until(end.0);
        }
        let made = put(entry, &who, (self.reason.as_ref(), None));
        change(&shared, control, &who, "mode", &self.policy, made).await
    }

    /// Returns the document, or a problem if a policy cannot have the mode.
    fn check<'a>(&self, shared: &'a Shared) -> Result<&'a Control, Problem> {
        let inspected = with_policy(shared.targets.all(), &self.policy)?;
        let control = control_for(shared, &inspected)?;
        let mut states = inspected.iter().flat_map(Inspect::policies);
        let conflict = states
            .find(|state| state.name == self.policy && state.not_shadow.is_some())
            .and_then(|state| state.not_shadow);
        match conflict {
            Some(error) if self.mode == Mode::Shadow => {
                Err(Problem::new(Code::CannotShadow).detail(error.to_string()))
            }
            _ => Ok(control),
        }
    }
}

impl ClearMode {
    pub(super) async fn make(
        self,
        shared: Handle,
        who: Who,
    ) -> Result<Changed<Vec<Policy>>, Problem> {
        let own = shared.control.as_ref();
        let own = own.filter(|control| mode_entry(&control.entries(), &self.policy).is_some());
        let control = match own {
            // An entry can be removed whatever became of its policy.
            Some(control) => control,
            None => control_for(&shared, &with_policy(shared.targets.all(), &self.policy)?)?,
        };
        let made = async { Ok(control.clear_mode(&self.policy).await?) };
        change(&shared, control, &who, "clear-mode", &self.policy, made).await
    }
}

/// Makes a change, and describes the policies of this name before and after it.
async fn change(
    shared: &Shared,
    control: &Control,
    who: &Who,
    action: &'static str,
    policy: &str,
    made: impl Future<Output = Result<bool, Failed>>,
) -> Result<Changed<Vec<Policy>>, Problem> {
    // The change replaces the settings of layers and limiters.
    let look = || policies(&shared.targets.all(), Some(control), Some(policy));
    let before = look();
    let (is_changed, outcome) = match made.await {
        Ok(is_changed) => (is_changed, Ok(())),
        Err(failed) => (false, Err(failed)),
    };
    let asked = Asked {
        who,
        action,
        policy: Some(policy),
        fingerprint: None,
    };
    asked.answer(shared, is_changed, outcome, (before, look()), |policies| {
        let each = policies.iter();
        let each = each.map(|one| format!("{}/{}: {}", one.limiter, one.name, one.mode));
        match policies.is_empty() {
            true => "no policy of this name here".to_owned(),
            false => each.collect::<Vec<_>>().join("; "),
        }
    })
}
