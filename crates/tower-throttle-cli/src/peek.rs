//! `peek`: what a caller has left.

use std::time::Duration;

use serde_json::{Value, json};
use tower_throttle::{Algorithm, PolicyDecision, control::Action};

use crate::{
    answer::{Answer, Failure},
    arguments::OneCaller,
    entries,
    live::Live,
    time::{moment, span},
};

pub(crate) async fn run(arguments: &OneCaller) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let name = &arguments.policy;
    let fingerprint = live.caller(name, &arguments.caller)?;
    let policy = live.policy(name, &arguments.quota)?;
    let (state, bucket) = policy.look_up(fingerprint).await?;
    let (found, entries) = (&bucket.decision, &state.entries);
    let is_banned = found.quota().algorithm() == Algorithm::Penalty && found.is_denied();
    let by_hand = entries
        .iter()
        .find(|entry| matches!(entry.action, Action::Ban { .. }));
    let banned_for = found.retry_after().filter(|_| is_banned);
    let mut text = format!(
        "policy {name:?}, caller {fingerprint}\n\
         quota      {}\n\
         remaining  {} of {}\n\
         reset      {}\n\
         wait       {}\n",
        found.quota(),
        found.remaining(),
        found.capacity(),
        in_words(found.reset_after()),
        wait(found),
    );
    if found.held_by_all_requests() > 0 {
        text.push_str(&format!("held       {}\n", found.held_by_all_requests()));
    }
    if let Some(time) = banned_for {
        text.push_str(&format!("banned     by the policy, for {}\n", span(time)));
    }
    for entry in entries {
        text.push_str(&format!("operator   {}\n", entries::line(entry)));
    }
    if let Some(key) = &state.storage_key {
        text.push_str(&format!("key        {key}\n"));
    }
    let json = json!({
        "policy": name,
        "fingerprint": fingerprint.to_string(),
        "quota": found.quota().to_string(),
        "limit": found.capacity(),
        "remaining": found.remaining(),
        "reset_after_ms": ms(found.reset_after()),
        "retry_after_ms": found.retry_after().map(ms),
        "allowed": !found.is_denied() && by_hand.is_none(),
        "held": found.held_by_all_requests(),
        "banned": is_banned || by_hand.is_some(),
        "banned_until": by_hand.and_then(|entry| entry.until).map(moment),
        "entries": entries.iter().map(entries::json).collect::<Vec<Value>>(),
        "key": state.storage_key,
    });
    let is_fine = !found.is_denied() && by_hand.is_none();
    Ok(Answer::fine(text, json).fine_if(is_fine))
}

fn in_words(time: Duration) -> String {
    match time.is_zero() {
        true => "nothing is used".to_owned(),
        false => format!("in {}", span(time)),
    }
}

fn wait(found: &PolicyDecision) -> String {
    match (found.is_denied(), found.retry_after()) {
        (false, _) => "none".to_owned(),
        (true, Some(time)) => span(time),
        (true, None) => "waiting does not help".to_owned(),
    }
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
