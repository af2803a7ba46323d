//! The commands that change the control document.

use serde_json::json;
use tower_throttle::{
    Fingerprint, Quota,
    control::{Change, End},
};

use crate::{
    answer::{Answer, Failure},
    arguments::{Ban, OneCaller, Override, SetMode, Signature},
    entries,
    live::Live,
};

pub(crate) async fn ban(arguments: &Ban) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let (policy, caller) = of(&live, &arguments.policy, &arguments.caller)?;
    let change = live.control.ban(policy, caller, arguments.time);
    make(
        &live,
        labeled(change, arguments.label.as_ref()),
        &arguments.signature,
        None,
    )
    .await
}

pub(crate) async fn unban(arguments: &OneCaller) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let (policy, caller) = of(&live, &arguments.policy, &arguments.caller)?;
    let is_changed = live.control.unban(policy, caller).await?;
    Ok(removed(
        is_changed,
        &format!("policy {policy:?}: the ban of {caller}"),
    ))
}

pub(crate) async fn set_quota(arguments: &Override) -> Result<Answer, Failure> {
    let Some((quota, caller)) = arguments.caller_and_quota.split_last() else {
        return Err(Failure::new("a caller and a quota are missing"));
    };
    let quota: Quota = quota.parse()?;
    let live = Live::open(&arguments.place).await?;
    let (policy, caller) = of(&live, &arguments.policy, caller)?;
    live.check_quota(policy, &quota)?;
    let change = live.control.override_quota(policy, caller, quota);
    let change = labeled(change, arguments.label.as_ref());
    make(&live, change, &arguments.signature, arguments.until).await
}

pub(crate) async fn clear(arguments: &OneCaller) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let (policy, caller) = of(&live, &arguments.policy, &arguments.caller)?;
    let is_changed = live.control.clear_override(policy, caller).await?;
    Ok(removed(
        is_changed,
        &format!("policy {policy:?}: the quota of {caller}"),
    ))
}

pub(crate) async fn set_mode(arguments: &SetMode) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let policy = &*arguments.policy;
    live.check_policy(policy)?;
    let Some(mode) = arguments.mode.mode() else {
        let is_changed = live.control.clear_mode(policy).await?;
        return Ok(removed(is_changed, &format!("policy {policy:?}: the mode")));
    };
    let change = live.control.set_mode(policy, mode);
    make(&live, change, &arguments.signature, arguments.until).await
}

/// Returns a policy, and what its store calls a caller.
fn of<'a>(
    live: &Live,
    policy: &'a str,
    caller: &[String],
) -> Result<(&'a str, Fingerprint), Failure> {
    Ok((policy, live.caller(policy, caller)?))
}

fn labeled(change: Change, label: Option<&String>) -> Change {
    match label {
        Some(label) => change.label(label),
        None => change,
    }
}

/// Makes a change, and describes the entry that it made.
async fn make(
    live: &Live,
    mut change: Change,
    signature: &Signature,
    until: Option<End>,
) -> Result<Answer, Failure> {
    if let Some(until) = until {
        change = change.until(until);
    }
    if let Some(author) = &signature.author {
        change = change.author(author);
    }
    if let Some(reason) = &signature.because {
        change = change.because(reason);
    }
    change.await?;
    let entries = live.control.entries();
    let made = entries.last();
    let text = made.map(entries::line).unwrap_or_default();
    let json = json!({ "changed": true, "entry": made.map(entries::json) });
    Ok(Answer::fine(text, json))
}

fn removed(is_changed: bool, what: &str) -> Answer {
    let text = match is_changed {
        true => format!("{what} is removed"),
        false => format!("{what} is not in the control document; nothing was changed"),
    };
    Answer::fine(text, json!({ "changed": is_changed })).fine_if(is_changed)
}
