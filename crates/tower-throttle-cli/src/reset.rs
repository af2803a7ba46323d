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
    let fingerprint = live.caller(name, &arguments.caller)?;
    live.policy(name, &arguments.quota)?
        .reset(fingerprint)
        .await?;
    let text = format!("policy {name:?}: caller {fingerprint} has used nothing");
    let json = json!({
        "policy": name,
        "fingerprint": fingerprint.to_string(),
    });
    Ok(Answer::fine(text, json))
}
