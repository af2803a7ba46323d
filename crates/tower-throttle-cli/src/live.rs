//! The limits of a running fleet: a file, and the Redis that it names.

use std::env;

use http::Request;
use tower_throttle::{
    Fingerprint, Key, Limiter, OnStoreFailure, Policy, Quota, RedisStore, RequestHead,
    config::Config,
    control::{Action, Caller, Control, Entry},
    key::KeyError,
};

use crate::{
    answer::Failure,
    arguments::{Place, WhichQuota},
    file,
};

pub(crate) struct Live {
    config: Option<Config>,
    pub(crate) redis: RedisStore,
    pub(crate) control: Control,
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
        Ok(Self {
            config,
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

    /// Reads the caller of a policy.
    pub(crate) fn caller(&self, policy: &str, parts: &[String]) -> Result<Key, Failure> {
        let caller = self.read_caller(policy, parts)?;
        match self.has_one_bucket(policy) && caller != Key::everyone() {
            true => Err(Failure::new(format!(
                "policy {policy:?} has one bucket for all callers; name it as `everyone:`"
            ))),
            false => Ok(caller),
        }
    }

    /// Returns whether a policy reads the same key from all requests.
    fn has_one_bucket(&self, policy: &str) -> bool {
        let request = Request::new(());
        let config = self.config.as_ref();
        let key = config.and_then(|config| config.key_of(policy, &RequestHead::from(&request)));
        key == Some(Ok(Key::everyone()))
    }

    fn read_caller(&self, policy: &str, parts: &[String]) -> Result<Key, Failure> {
        let caller = Caller::parse(parts)?;
        let Some(config) = &self.config else {
            let needs_file = || Failure::new("only a file says how a key is read; name one");
            return caller.key().ok_or_else(needs_file);
        };
        self.check_policy(policy)?;
        let read = |head: &RequestHead<'_>| {
            let key = config.key_of(policy, head);
            key.unwrap_or_else(|| Err(KeyError::missing()))
        };
        let key = caller.key_by(read);
        key.map_err(|error| Failure::new(format!("policy {policy:?}: {error}")))
    }

    /// Returns what the store calls a caller.
    pub(crate) fn fingerprint(&self, caller: &Key) -> Fingerprint {
        self.control.fingerprint(caller.clone())
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

    /// Returns an error if a policy of the file cannot have a quota, which processes would not
    /// follow.
    pub(crate) fn check_quota(&self, policy: &str, quota: Quota) -> Result<(), Failure> {
        let Some(config) = &self.config else {
            return Ok(());
        };
        match config.policy(policy, None)? {
            Some(policy) => self.limiter(policy.with_quota(quota)).map(drop),
            None => Ok(()),
        }
    }

    /// Returns a policy with the quota that it has for most callers.
    pub(crate) fn policy(&self, name: &str, which: &WhichQuota) -> Result<Policy, Failure> {
        self.check_policy(name)?;
        match (&self.config, which.quota) {
            (_, Some(quota)) => Ok(Policy::new(name, quota)),
            (Some(config), None) => {
                let policy = config.policy(name, which.tier.as_deref())?;
                policy.ok_or_else(|| Failure::new(format!("the file has no policy {name:?}")))
            }
            (None, None) => Err(Failure::new(format!(
                "policy {name:?} is in code; say its quota with `--quota \"10 per second\"`"
            ))),
        }
    }

    /// Returns a limiter of one policy, which asks Redis and nothing in its place. `quota`: in place
    /// of that of the policy.
    pub(crate) fn limiter(&self, policy: Policy) -> Result<Limiter, Failure> {
        let limiter = Limiter::builder()
            .store(self.redis.clone())
            .policy(policy.on_store_failure(OnStoreFailure::Deny));
        Ok(limiter.build()?)
    }

    /// Returns what operators have changed for a caller of a policy.
    pub(crate) fn entries(&self, policy: &str, caller: Fingerprint) -> Vec<Entry> {
        let is_meant = |entry: &Entry| match &entry.action {
            Action::Override {
                policy: of,
                caller: other,
                ..
            }
            | Action::Ban {
                policy: of,
                caller: other,
                ..
            } => of == policy && *other == caller,
            Action::Mode { policy: of, .. } => of == policy,
            Action::ListKey { key, .. } => *key == caller,
            _ => false,
        };
        let entries = self.control.entries().into_iter();
        entries.filter(is_meant).collect()
    }
}

/// Returns the quota that operators gave a caller.
pub(crate) fn override_of(entries: &[Entry]) -> Option<Quota> {
    entries.iter().find_map(|entry| match &entry.action {
        Action::Override { quota, .. } => Some(*quota),
        _ => None,
    })
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
