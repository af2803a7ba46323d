//! The limits of a running fleet: a file, and the Redis that it names.

use std::{env, path::Path, time::Duration};

use clap::Args;
use serde_json::json;
use tower_throttle::{
    ConfigError, Fingerprint, Key, PolicyDecision, Quota, RedisStore, Source,
    control::{Caller, Control},
    inspect::{CallerState, Inspect},
    parse_duration,
};
use tower_throttle_config::Config;

use crate::{
    error::Result,
    readers::{read_file, stand_ins},
};

const NO_REDIS: &str = "the file names no Redis, and a command reaches no buckets in memory; name a \
Redis with `--redis URL`";

/// How many callers are looked up or reset at a time.
pub(crate) const AT_A_TIME: usize = 256;

/// Where the limits are.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The file with the limits, or `-` for limits that are in code. Then `--redis` is needed.
    file: String,
    /// The URL of Redis, in place of that in the file.
    #[arg(long, env = "TOWER_THROTTLE_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// The prefix of all keys in Redis, in place of that in the file.
    #[arg(long)]
    prefix: Option<String>,
    /// The variable of the environment with the store's secret, in place of that in the file.
    #[arg(long, value_name = "NAME", value_parser = variable)]
    secret_variable: Option<String>,
    /// How long one call to Redis may take.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct OneCaller {
    #[command(flatten)]
    place: Place,
    /// The name of the policy.
    pub(crate) policy: String,
    /// The caller.
    #[arg(required = true, value_name = "KEY")]
    caller: Vec<String>,
}

/// Which quota a policy has.
#[derive(Args, Debug)]
pub(crate) struct WhichQuota {
    /// The tier of the caller, for a policy with tiers. Default: that of `otherwise`.
    #[arg(long, conflicts_with = "quota")]
    tier: Option<String>,
    /// The quota of a policy that is in code, such as "10 per second, burst 20".
    #[arg(long, required_if_eq("file", "-"))]
    pub(crate) quota: Option<Quota>,
}

/// A file, and its Redis.
pub(crate) struct Live {
    pub(crate) config: Config,
    pub(crate) inspect: Inspect,
    pub(crate) redis: RedisStore,
    pub(crate) control: Control,
}

impl Place {
    /// Reads the file, which has to have this policy, and the control document in Redis. `quota`: that
    /// of a policy in code, for commands that ask for a bucket.
    pub(crate) async fn open(&self, policy: Option<&str>, quota: Option<Quota>) -> Result<Live> {
        let mut config = match &*self.file {
            "-" => in_code(policy, quota)?,
            file => read_file(Path::new(file), &[])?,
        };
        let names = config.names().policies;
        if let Some(name) = policy.filter(|name| !names.iter().any(|known| known == name)) {
            let names = names.join(", ");
            return Err(format!("the file has no policy {name:?}; it has {names}").into());
        }
        if let Some(url) = &self.redis {
            config = config.redis_url(url);
        }
        let (mut builder, url) = match (config.redis()?, &self.redis) {
            (Some(from_file), _) => from_file,
            (None, Some(url)) => (RedisStore::builder(), url.clone()),
            (None, None) => return Err(NO_REDIS.into()),
        };
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(secret) = &self.secret_variable {
            builder = builder.secret(&**secret);
        }
        let redis = builder.timeout(self.timeout).connect(&url)?;
        let control = redis.control();
        control.refresh().await?;
        Ok(Live {
            inspect: config.inspect_on(redis.clone(), &control)?,
            config,
            redis,
            control,
        })
    }
}

/// Returns the value of a variable of the environment, and never prints it.
fn variable(name: &str) -> Result<String, &'static str> {
    env::var(name).map_err(|_| "the variable is not set to a text")
}

/// Makes up the file of a policy that is in code. A command that asks for no bucket needs no quota.
fn in_code(policy: Option<&str>, quota: Option<Quota>) -> Result<Config> {
    let quota = quota.map_or("1 per day".to_owned(), |quota| quota.to_string());
    // A text of JSON is one of TOML.
    let (name, quota) = (json!(policy.unwrap_or("any")), json!(quota));
    let policy = format!("name = {name}\nquota = {quota}\nkey = \"reader:code\"\n");
    let text = format!("version = 1\n[[policy]]\n{policy}");
    let config = Config::from_toml(&text)?;
    let readers = stand_ins(&config.reader_names(), &[])?;
    Ok(config.readers(readers))
}

impl OneCaller {
    /// Opens the limits, and returns what their store calls the caller. `quota`: that of a policy in
    /// code.
    pub(crate) async fn open(&self, quota: Option<Quota>) -> Result<(Live, Fingerprint)> {
        let policy = &*self.policy;
        let caller = Caller::parse(&self.caller)?;
        let live = self.place.open(Some(policy), quota).await?;
        let fingerprint = live.inspect.fingerprint(&caller, policy);
        let fingerprint = fingerprint
            .ok_or("no such policy")?
            .map_err(|why| format!("policy {policy:?}: {why}"))?;
        let everyone = live.control.fingerprint(Key::everyone());
        if fingerprint == everyone && caller.key() != Some(Key::everyone()) {
            let message = "has one bucket for all callers; name it as `everyone:`";
            return Err(format!("policy {policy:?} {message}").into());
        }
        Ok((live, fingerprint))
    }
}

impl Live {
    /// Returns the quota of a tier, or that of most callers. `None` for a policy without tiers.
    pub(crate) fn tier(&self, policy: &str, which: &WhichQuota) -> Result<Option<Quota>> {
        if which.quota.is_some() && self.config.path().is_some() {
            return Err("`--quota` is for limits in code; write `-` in place of the file".into());
        }
        let quota = self.config.tier(policy, which.tier.as_deref());
        match (&which.tier, quota) {
            (Some(tier), None) => Err(format!("policy {policy:?} has no tier {tier:?}").into()),
            _ => Ok(quota),
        }
    }
}

/// Looks a caller up in Redis.
pub(crate) async fn look_up(
    inspect: Inspect,
    policy: String,
    tier: Option<Quota>,
    caller: Fingerprint,
) -> Result<(CallerState, PolicyDecision)> {
    let caller = by_fingerprint(caller)?.in_tier(tier);
    let states = inspect.look_up(&caller, Some(&policy)).await;
    let state = states.into_iter().next().ok_or("no such policy")?;
    match &state.bucket {
        Ok(bucket) if bucket.source == Source::Store => {
            let decision = bucket.decision.clone();
            Ok((state, decision))
        }
        Ok(_) => Err("Redis did not answer in time".into()),
        Err(why) => Err(format!("policy {policy:?}: {why}").into()),
    }
}

/// Gives a caller a full bucket in Redis.
pub(crate) async fn reset(
    inspect: Inspect,
    policy: String,
    tier: Option<Quota>,
    caller: Fingerprint,
) -> Result<()> {
    let caller = by_fingerprint(caller)?.in_tier(tier);
    inspect.reset(&caller, Some(&policy)).await?;
    Ok(())
}

fn by_fingerprint(caller: Fingerprint) -> Result<Caller, ConfigError> {
    Caller::parse(&[format!("fingerprint:{caller}")])
}
