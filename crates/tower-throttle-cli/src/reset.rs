//! `reset`: a full bucket for one caller.

use serde_json::json;

use crate::{
    answer::{Answer, Failure},
    arguments::OneCaller,
    live::Live,
};

pub(crate) async fn run(arguments: &OneCaller) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let name = &arguments.policy;
    let caller = live.caller(name, &arguments.caller)?;
    let limiter = live.limiter(live.policy(name, &arguments.quota)?)?;
    limiter.reset(caller.clone()).await?;
    limiter.reset_shared().await?;
    let fingerprint = live.fingerprint(&caller);
    let keys = limiter.storage_keys(caller);
    let text = format!("policy {name:?}: caller {fingerprint} has used nothing");
    let json = json!({
        "policy": name,
        "fingerprint": fingerprint.to_string(),
        "key": keys.first(),
    });
    Ok(Answer::fine(text, json))
}
