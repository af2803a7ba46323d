//! `reset-all`: full buckets for all callers of a policy.

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    answer::{Answer, lines},
    error::Result,
    live::{AT_A_TIME, Place, WhichQuota, reset},
};

#[derive(Args, Debug)]
pub(crate) struct ResetAll {
    #[command(flatten)]
    place: Place,
    /// The name of the policy.
    policy: String,
    #[command(flatten)]
    quota: WhichQuota,
    /// How many keys of Redis to look at.
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    most_scanned: usize,
}

impl ResetAll {
    pub(crate) async fn run(&self) -> Result<Answer> {
        let name = &*self.policy;
        let live = self.place.open(Some(name), self.quota.quota).await?;
        let tier = live.tier(name, &self.quota)?;
        let known = live.redis.callers(name, self.most_scanned).await?;
        for callers in known.fingerprints.chunks(AT_A_TIME) {
            let ask = |caller| reset(live.inspect.clone(), name.to_owned(), tier, caller);
            let asked: JoinSet<_> = callers.iter().copied().map(ask).collect();
            for done in asked.join_all().await {
                done?;
            }
        }
        let json = json!({
            "policy": name,
            "reset": known.fingerprints.len(),
            "complete": known.is_complete,
        });
        let text = format!("policy {name:?}\n{}", lines(&json, &["reset", "complete"]));
        Ok(Answer::fine(text, json).fine_if(known.is_complete))
    }
}
