//! `top`: the callers that have used most.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_throttle::Fingerprint;

use crate::{
    answer::{Answer, Failure},
    arguments::Top,
    live::{Asked, Live},
    peek::ms,
    time::span,
};

/// How many callers are asked about at a time.
const AT_A_TIME: usize = 256;

pub(crate) async fn run(arguments: &Top) -> Result<Answer, Failure> {
    let live = Live::open(&arguments.place).await?;
    let names = match &arguments.policy {
        Some(name) => vec![name.clone()],
        None if live.policies().is_empty() => return Err(Failure::new("name a policy")),
        None => live.policies(),
    };
    let (mut texts, mut json) = (Vec::new(), Vec::new());
    for name in &names {
        let (text, value) = of_policy(&live, name, arguments).await?;
        texts.push(text);
        json.push(value);
    }
    Ok(Answer::fine(texts.concat(), json!({ "policies": json })))
}

async fn of_policy(live: &Live, name: &str, arguments: &Top) -> Result<(String, Value), Failure> {
    let policy = live.policy(name, &arguments.quota)?;
    let found = live.redis.callers(name, arguments.most_scanned).await?;
    let mut used = Vec::new();
    let mut fingerprints = found.fingerprints.iter();
    let mut asked = JoinSet::new();
    loop {
        for caller in fingerprints.by_ref().take(AT_A_TIME - asked.len()) {
            asked.spawn(ask(policy.clone(), *caller));
        }
        let Some(answer) = asked.join_next().await else {
            break;
        };
        used.extend(answer.map_err(|error| Failure::new(error.to_string()))??);
    }
    let callers = used.len();
    // The fullest first: compares used / capacity without rounding.
    used.sort_by_key(|one| {
        let share = u128::from(one.used) * u128::from(u64::MAX) / u128::from(one.capacity.max(1));
        (std::cmp::Reverse(share), one.fingerprint)
    });
    used.truncate(arguments.limit);
    let bound = match found.is_complete {
        true => String::new(),
        false => format!(
            "; there may be more, as only {} keys were looked at",
            arguments.most_scanned
        ),
    };
    let count = match callers {
        1 => "1 caller".to_owned(),
        count => format!("{count} callers"),
    };
    let mut text = format!("policy {name:?}: {count} with a bucket{bound}\n");
    for one in &used {
        let Used {
            fingerprint,
            used,
            capacity,
            ..
        } = one;
        let reset = span(one.reset_after);
        text.push_str(&format!(
            "{fingerprint}  {used} of {capacity}  reset in {reset}\n"
        ));
    }
    let list = used.iter().map(|one| {
        json!({
            "fingerprint": one.fingerprint.to_string(),
            "used": one.used,
            "capacity": one.capacity,
            "reset_after_ms": ms(one.reset_after),
        })
    });
    let json = json!({
        "policy": name,
        "callers": list.collect::<Vec<_>>(),
        "found": callers,
        "complete": found.is_complete,
    });
    Ok((text, json))
}

struct Used {
    fingerprint: Fingerprint,
    used: u64,
    capacity: u64,
    reset_after: std::time::Duration,
}

/// Asks how much a caller has used. `None` if it is nothing anymore.
async fn ask(policy: Asked, fingerprint: Fingerprint) -> Result<Option<Used>, Failure> {
    let (_, bucket) = policy.look_up(fingerprint).await?;
    let found = bucket.decision;
    let (capacity, reset_after) = (found.capacity(), found.reset_after());
    Ok((!reset_after.is_zero()).then_some(Used {
        fingerprint,
        used: capacity.saturating_sub(found.remaining()),
        capacity,
        reset_after,
    }))
}
