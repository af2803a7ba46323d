//! The limits of a running fleet: a file, and the Redis that it names.

use std::env;

use tower_throttle::{
    Fingerprint, Key, Limiter, Policy, Quota, RedisStore, Source,
    control::{Caller, Control},
    inspect::{Bucket, CallerState, Inspect, Inspectable},
};
use tower_throttle_config::Config;

use crate::{
    answer::Failure,
    arguments::{Place, WhichQuota},
    file,
};

pub(crate) struct Live {
    config: Option<Config>,
    /// Its layers, and then its limiters.
    limits: Vec<Inspect>,
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
        let redis = connect(place, config.as_ref())?;
        let control = redis.control();
        control.refresh().await?;
        let mut limits = Vec::new();
        if let Some(config) = config.clone() {
            let built = config.build_on(redis.clone())?;
            built.follow(&control);
            limits = built.inspect_all();
        }
        Ok(Self {
            config,
            limits,
            redis,
            control,
        })
    }

    /// Returns the names of all policies of the file.
    pub(crate) fn policies(&self) -> Vec<String> {
        let config = self.config.as_ref();
        config
            .map(|config| config.names().policies)
            .unwrap_or_default()
    }

    /// Returns an error if the file has no policy of this name.
    pub(crate) fn check_policy(&self, name: &str) -> Result<(), Failure> {
        let names = self.policies();
        match self.config.is_none() || names.iter().any(|known| known == name) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the file has no policy {name:?}; it has {}",
                names.join(", ")
            ))),
        }
    }

    /// Returns the first layer or limiter of the file with a policy of this name.
    fn of(&self, name: &str) -> Option<&Inspect> {
        let mut limits = self.limits.iter();
        limits.find(|of| of.policies().iter().any(|policy| policy.name == name))
    }

    /// Returns a policy with the quota that it has for most callers.
    pub(crate) fn policy(&self, name: &str, which: &WhichQuota) -> Result<Asked, Failure> {
        self.check_policy(name)?;
        let of_code = |quota| {
            let limiter = Limiter::builder().store(self.redis.clone());
            let limiter = limiter.control(self.control.clone());
            Ok::<_, Failure>(limiter.policy(Policy::new(name, quota)).build()?.inspect())
        };
        let (of, tier) = match (&self.config, which.quota) {
            (_, Some(quota)) => (of_code(quota)?, None),
            (Some(config), None) => {
                let of = self.of(name).cloned();
                let tier = which.tier.as_deref();
                let unknown = |tier| Failure::new(format!("policy {name:?} has no tier {tier:?}"));
                let quota = config.tier(name, tier);
                if let (Some(tier), None) = (tier, quota) {
                    return Err(unknown(tier));
                }
                let unused =
                    || Failure::new(format!("no layer and no limiter has policy {name:?}"));
                (of.ok_or_else(unused)?, quota)
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
        let policies = self.of(policy).map(Inspect::policies).unwrap_or_default();
        let policy = policies.iter().find(|known| known.name == policy);
        Ok(policy.map_or(Ok(()), |policy| policy.check_override(quota))?)
    }

    /// Returns what the store calls a caller of a policy.
    pub(crate) fn caller(&self, policy: &str, parts: &[String]) -> Result<Fingerprint, Failure> {
        self.check_policy(policy)?;
        let caller = Caller::parse(parts)?;
        let Some(of) = self.of(policy) else {
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
        self.of.reset(&caller, Some(&self.name)).await?;
        Ok(())
    }
}

fn by_fingerprint(caller: Fingerprint) -> Result<Caller, Failure> {
    Ok(Caller::parse(&[format!("fingerprint:{caller}")])?)
}

fn connect(place: &Place, config: Option<&Config>) -> Result<RedisStore, Failure> {
    let from_file = match config {
        Some(config) => config.redis(place.redis.as_deref())?,
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
