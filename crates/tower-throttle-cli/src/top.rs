//! `top`: the callers that have used most.

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    answer::{Answer, lines, rows},
    error::Result,
    live::{AT_A_TIME, Live, Place, WhichQuota, look_up},
    time::ms,
};

#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    place: Place,
    /// The name of the policy. Default: all policies of the file.
    #[arg(required_if_eq("file", "-"))]
    policy: Option<String>,
    #[command(flatten)]
    quota: WhichQuota,
    /// How many callers to list for each policy.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// How many keys of Redis to look at for each policy.
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    most_scanned: usize,
}

impl Top {
    pub(crate) async fn run(&self) -> Result<Answer> {
        let policy = self.policy.as_deref();
        let live = self.place.open(policy, self.quota.quota).await?;
        let names = match &self.policy {
            Some(name) => vec![name.clone()],
            None => live.config.names().policies,
        };
        let (mut text, mut policies) = (String::new(), Vec::new());
        for name in &names {
            let answer = self.list(&live, name).await?;
            text += &answer.text;
            policies.push(answer.json);
        }
        Ok(Answer::fine(text, json!({ "policies": policies })))
    }

    async fn list(&self, live: &Live, name: &str) -> Result<Answer> {
        let (inspect, tier) = (&live.inspect, live.tier(name, &self.quota)?);
        let known = live.redis.callers(name, self.most_scanned).await?;
        let mut used = Vec::new();
        for callers in known.fingerprints.chunks(AT_A_TIME) {
            let ask = |caller| look_up(inspect.clone(), name.to_owned(), tier, caller);
            let asked: JoinSet<_> = callers.iter().copied().map(ask).collect();
            for answer in asked.join_all().await {
                let (state, found) = answer?;
                let (capacity, reset_after) = (found.capacity(), found.reset_after());
                let units = capacity.saturating_sub(found.remaining());
                let json = json!({
                    "fingerprint": state.fingerprint.map(|caller| caller.to_string()),
                    "used": units,
                    "capacity": capacity,
                    "reset_after_ms": ms(reset_after),
                });
                used.push((units as f64 / capacity.max(1) as f64, json));
            }
        }
        used.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let found = used.len();
        let callers = used.into_iter().map(|(_, caller)| caller);
        let callers: Vec<_> = callers.take(self.limit).collect();
        let json = json!({
            "policy": name,
            "callers": callers,
            "found": found,
            "complete": known.is_complete,
        });
        let mut text = format!("policy {name:?}\n{}", lines(&json, &["found", "complete"]));
        let names = ["fingerprint", "used", "capacity", "reset_after_ms"];
        text += &rows("caller", &callers, &names);
        Ok(Answer::fine(text, json))
    }
}
