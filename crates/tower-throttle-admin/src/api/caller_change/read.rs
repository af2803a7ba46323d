//! What the bodies of the calls say.

use super::{Action, CallerChange};
use crate::{
    api::{body::Fields, look_up::Question},
    problem::Problem,
};

impl CallerChange {
    pub(in crate::api) fn reset(body: &[u8]) -> Result<Self, Problem> {
        Ok(Self::of(Question::read(body)?, Action::Reset))
    }

    pub(in crate::api) fn ban(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let question = question(&mut fields)?;
        let action = Action::Ban(fields.required_until()?);
        let mut change = Self::of(question, action);
        change.read_notes(&mut fields)?;
        fields.end(&["caller", "policy", "for", "until_ms", "reason", "label"])?;
        Ok(change)
    }

    pub(in crate::api) fn unban(body: &[u8]) -> Result<Self, Problem> {
        Self::of_caller_and_policy(body, Action::Unban)
    }

    pub(in crate::api) fn set_quota(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let question = question(&mut fields)?;
        let action = Action::Override(fields.quota()?, fields.required_until()?);
        let mut change = Self::of(question, action);
        change.read_notes(&mut fields)?;
        let known = [
            "caller", "policy", "quota", "for", "until_ms", "reason", "label",
        ];
        fields.end(&known)?;
        Ok(change)
    }

    pub(in crate::api) fn clear_quota(body: &[u8]) -> Result<Self, Problem> {
        Self::of_caller_and_policy(body, Action::ClearOverride)
    }

    fn of_caller_and_policy(body: &[u8], action: Action) -> Result<Self, Problem> {
        let mut fields = Fields::read(body)?;
        let question = question(&mut fields)?;
        fields.end(&["caller", "policy"])?;
        Ok(Self::of(question, action))
    }

    const fn of(question: Question, action: Action) -> Self {
        Self {
            question,
            action,
            reason: None,
            label: None,
        }
    }

    fn read_notes(&mut self, fields: &mut Fields) -> Result<(), Problem> {
        self.reason = fields.note("reason")?;
        self.label = fields.note("label")?;
        Ok(())
    }
}

fn question(fields: &mut Fields) -> Result<Question, Problem> {
    Ok(Question {
        caller: fields.caller()?,
        policy: Some(fields.required_policy()?),
        limiter: None,
        tier: None,
    })
}
