//! The limits of a running fleet: a file, and the Redis that it names.

use std::env;

use tower_throttle::{
    Fingerprint, Key, Limiter, Policy, Quota, RedisStore, Source,
    control::{Caller, Control},
    inspect::{Bucket, CallerState, Inspect},
};
use tower_throttle_config::Config;

use crate::{
    answer::Failure,
    arguments::{Place, WhichQuota},
    file,
};

pub(crate) struct Live {
    /// The file, and all its policies.
    file: Option<(Config, Inspect)>,
    pub(crate) redis: RedisStore,
    pub(crate) control: Control,
}

/// A policy of a file or of code, and the quota of callers whose requests choose it.
#[derive(Clone)]
pub(crate) struct Asked {
    name: String,
    of: Inspect,
    tier: Option<Quota>,
}

impl Live {
    /// Reads the file and asks Redis for the control document.
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        let config = match &*place.file {
            "-" => None,
            path => Some(file::read(path)?),
        };
        let config = match (config, &place.redis) {
            (Some(config), Some(url)) => Some(config.redis_url(url)),
            (config, _) => config,
        };
        let redis = connect(place, config.as_ref())?;
        let control = redis.control();
        control.refresh().await?;
        let file = match config {
            Some(config) => {
                let policies = config.inspect_on(redis.clone(), &control)?;
                Some((config, policies))
            }
            None => None,
        };
        Ok(Self {
            file,
            redis,
            control,
        })
    }

    /// Returns the names of all policies of the file.
    pub(crate) fn policies(&self) -> Vec<String> {
        let file = self.file.as_ref();
        file.map(|(config, _)| config.names().policies)
            .unwrap_or_default()
    }

    /// Returns an error if the file has no policy of this name.
    pub(crate) fn check_policy(&self, name: &str) -> Result<(), Failure> {
        let names = self.policies();
        match self.file.is_none() || names.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the file has no policy {name:?}; it has {}",
                names.join(", ")
            ))),
        }
    }

    /// Returns a policy with the quota that it has for most callers.
    pub(crate) fn policy(&self, name: &str, which: &WhichQuota) -> Result<Asked, Failure> {
        self.check_policy(name)?;
        let of_code = |quota| {
            let limiter = Limiter::builder().store(self.redis.clone());
            let limiter = limiter.control(self.control.clone());
            Ok::<_, Failure>(limiter.policy(Policy::new(name, quota)).build()?.inspect())
        };
        let (of, tier) = match (&self.file, which.quota) {
            (_, Some(quota)) => (of_code(quota)?, None),
            (Some((config, of)), None) => {
                let tier = which.tier.as_deref();
                let quota = config.tier(name, tier);
                if let (Some(tier), None) = (tier, quota) {
                    let message = format!("policy {name:?} has no tier {tier:?}");
                    return Err(Failure::new(message));
                }
                (of.clone(), quota)
            }
            (None, None) => {
                return Err(Failure::new(format!(
                    "policy {name:?} is in code; say its quota with `--quota \"10 per second\"`"
                )));
            }
        };
        let name = name.to_owned();
        Ok(Asked { name, of, tier })
    }

    /// Returns an error if callers of a policy of the file cannot have this quota, which processes
    /// would not follow.
    pub(crate) fn check_quota(&self, policy: &str, quota: &Quota) -> Result<(), Failure> {
        let file = self.file.as_ref();
        let policies = file.map(|(_, of)| of.policies()).unwrap_or_default();
        let policy = policies.iter().find(|known| known.name == policy);
        Ok(policy.map_or(Ok(()), |policy| policy.check_override(quota))?)
    }

    /// Returns what the store calls a caller of a policy.
    pub(crate) fn caller(&self, policy: &str, parts: &[String]) -> Result<Fingerprint, Failure> {
        self.check_policy(policy)?;
        let caller = Caller::parse(parts)?;
        let Some((_, of)) = &self.file else {
            let needs_file = || Failure::new("only a file says how a key is read; name one");
            let key = caller.key().ok_or_else(needs_file)?;
            return Ok(self.control.fingerprint(key));
        };
        let fingerprint = of.fingerprint(&caller, policy);
        let fingerprint = fingerprint.ok_or_else(|| Failure::new("no such policy"))?;
        let fingerprint =
            fingerprint.map_err(|why| Failure::new(format!("policy {policy:?}: {why}")))?;
        let is_everyone = fingerprint == self.control.fingerprint(Key::everyone());
        match is_everyone && caller.key() != Some(Key::everyone()) {
            true => Err(Failure::new(format!(
                "policy {policy:?} has one bucket for all callers; name it as `everyone:`"
            ))),
            false => Ok(fingerprint),
        }
    }
}

impl Asked {
    /// Looks a caller up in Redis.
    pub(crate) async fn look_up(
        &self,
        caller: Fingerprint,
    ) -> Result<(CallerState, Bucket), Failure> {
        let caller = by_fingerprint(caller)?;
        let tier = self.tier;
        let found = self.of.look_up_in_tier(&caller, Some(&self.name), tier);
        let state = found.await.into_iter().next();
        let state = state.ok_or_else(|| Failure::new("no such policy"))?;
        match &state.bucket {
            Ok(bucket) if bucket.source == Source::Store => {
                let bucket = bucket.clone();
                Ok((state, bucket))
            }
            Ok(_) => Err(Failure::new("Redis: it did not answer in time")),
            Err(why) => Err(Failure::new(format!("policy {:?}: {why}", self.name))),
        }
    }

    /// Gives a caller a full bucket.
    pub(crate) async fn reset(&self, caller: Fingerprint) -> Result<(), Failure> {
        let caller = by_fingerprint(caller)?;
        let reset = self.of.reset_in_tier(&caller, Some(&self.name), self.tier);
        match reset.await?.is_empty() {
            true => Err(Failure::new(format!(
                "policy {:?} has no such bucket",
                self.name
            ))),
            false => Ok(()),
        }
    }
}

fn by_fingerprint(caller: Fingerprint) -> Result<Caller, Failure> {
    Ok(Caller::parse(&[format!("fingerprint:{caller}")])?)
}

fn connect(place: &Place, config: Option<&Config>) -> Result<RedisStore, Failure> {
    let from_file = match config {
        Some(config) => config.redis()?,
        None => None,
    };
    let (mut builder, url) = match (from_file, &place.redis) {
        (Some(from_file), _) => from_file,
        (None, Some(url)) => (RedisStore::builder(), url.clone()),
        (None, None) => {
            let why = match config {
                Some(_) => "the file names no Redis, and a command reaches no buckets in memory",
                None => "there is no file",
            };
            return Err(Failure::new(format!(
                "{why}; name a Redis with `--redis URL`"
            )));
        }
    };
    if let Some(prefix) = &place.prefix {
        builder = builder.prefix(prefix);
    }
    if let Some(name) = &place.secret_variable {
        let secret = env::var(name);
        let unset = |_| {
            Failure::new(format!(
                "the variable {name} is not set; set it to the secret"
            ))
        };
        builder = builder.secret(secret.map_err(unset)?);
    }
    Ok(builder.timeout(place.timeout).connect(&url)?)
}
