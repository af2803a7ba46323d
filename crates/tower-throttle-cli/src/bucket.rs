//! `peek` and `reset`: the bucket of one caller.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    answer::{Answer, lines, rows},
    control::{ENTRY_FIELDS, entry_json},
    error::Result,
    live::{OneCaller, WhichQuota, look_up, reset},
    time::{moment, ms},
};

#[derive(Args, Debug)]
pub(crate) struct OneBucket {
    #[command(flatten)]
    caller: OneCaller,
    #[command(flatten)]
    quota: WhichQuota,
}

impl OneBucket {
    pub(crate) async fn peek(&self) -> Result<Answer> {
        let (live, fingerprint) = self.caller.open(self.quota.quota).await?;
        let name = &*self.caller.policy;
        let tier = live.tier(name, &self.quota)?;
        let found = look_up(live.inspect, name.to_owned(), tier, fingerprint);
        let (state, found) = found.await?;
        let banned_until = state.banned_until.or(state.banned_by_policy_until());
        let is_allowed = !found.is_denied() && banned_until.is_none();
        let entries: Vec<Value> = state.entries.iter().map(entry_json).collect();
        let mut text = format!("policy {name:?}, caller {fingerprint}\n");
        let json = json!({
            "policy": name,
            "fingerprint": fingerprint.to_string(),
            "quota": found.quota().to_string(),
            "limit": found.capacity(),
            "remaining": found.remaining(),
            "reset_after_ms": ms(found.reset_after()),
            "retry_after_ms": found.retry_after().map(ms),
            "allowed": is_allowed,
            "held": found.held_by_all_requests(),
            "banned": banned_until.is_some(),
            "banned_until": banned_until.map(moment),
            "entries": entries,
            "key": state.storage_key,
        });
        #[rustfmt::skip]
        let names = [
            "quota", "limit", "remaining", "held", "reset_after_ms", "retry_after_ms", "allowed",
            "banned_until", "key",
        ];
        text += &lines(&json, &names);
        text += &rows("operator", &entries, &ENTRY_FIELDS);
        Ok(Answer::fine(text, json).fine_if(is_allowed))
    }

    pub(crate) async fn reset(&self) -> Result<Answer> {
        let (live, fingerprint) = self.caller.open(self.quota.quota).await?;
        let name = &*self.caller.policy;
        let tier = live.tier(name, &self.quota)?;
        reset(live.inspect, name.to_owned(), tier, fingerprint).await?;
        let text = format!("policy {name:?}: caller {fingerprint} has used nothing");
        let json = json!({ "policy": name, "fingerprint": fingerprint.to_string() });
        Ok(Answer::fine(text, json))
    }
}
