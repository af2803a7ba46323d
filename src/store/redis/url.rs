//! Reads a URL: where to connect, and the credentials.

use super::{
    address::{Address, unusable},
    connect::{Access, Settings},
};
use crate::ConfigError;

/// The servers to connect to.
pub(crate) enum Target {
    /// One server, or the server that sentinels name.
    Node(Settings),
    /// Nodes to ask for the other nodes. Their settings apply to all.
    Cluster(Settings, Vec<Address>),
}

impl Target {
    pub(crate) fn of(url: &str, access: &Access) -> Result<Self, ConfigError> {
        let (scheme, address) = url
            .split_once("://")
            .ok_or_else(|| unusable("it has no scheme; write redis://host:port/database"))?;
        let scheme = &*scheme.to_ascii_lowercase();
        let (kind, form) = scheme.split_once('-').unwrap_or((scheme, ""));
        // A URL parser drops what follows a #, which may be a part of a password.
        if address.contains('#') {
            return Err(unusable("it contains a #; in a password, write %23"));
        }
        let is_tls = match kind {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(unknown(scheme)),
        };
        let mut target = match form {
            "" if kind == scheme => one(address)?,
            "cluster" => cluster(&Parts::of(address))?,
            "sentinel" => sentinel(&Parts::of(address))?,
            _ => return Err(unknown(scheme)),
        };
        let (Self::Node(settings) | Self::Cluster(settings, _)) = &mut target;
        settings.add(access, is_tls)?;
        Ok(target)
    }
}

/// `user:password@host:port,host:port/database?name=value`.
struct Parts<'a> {
    user: &'a str,
    hosts: Vec<&'a str>,
    database: &'a str,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn of(address: &'a str) -> Self {
        let (address, query) = address.split_once('?').unwrap_or((address, ""));
        let (authority, database) = address.split_once('/').unwrap_or((address, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let query = query.split('&').filter(|part| !part.is_empty());
        let query = query.map(|part| part.split_once('=').unwrap_or((part, "")));
        let (others, query): (Vec<_>, Vec<_>) = query.partition(|(name, _)| *name == "node");
        let others = others.iter().map(|(_, host)| *host);
        Self {
            user,
            hosts: hosts.split(',').chain(others).collect(),
            database,
            query,
        }
    }
}

fn one(address: &str) -> Result<Target, ConfigError> {
    let parts = Parts::of(address);
    if parts.hosts.len() > 1 {
        return Err(unusable(
            "it names several servers: write redis-cluster://host,host/ for a cluster, or \
             redis-sentinel://host,host/?sentinelServiceName=mymaster for sentinels",
        ));
    }
    if !parts.query.is_empty() {
        return Err(unusable(
            "it contains a ?; settings belong to `RedisStore::builder()`; in a password, write %3F",
        ));
    }
    Ok(Target::Node(Settings::of_server(address)?))
}

fn cluster(parts: &Parts<'_>) -> Result<Target, ConfigError> {
    if !matches!(parts.database, "" | "0") {
        return Err(unusable("a cluster has one database: leave it out"));
    }
    if !parts.query.is_empty() {
        return Err(unusable("its query may only hold node=host:port"));
    }
    let mut seeds = Vec::new();
    let mut first = None;
    for host in &parts.hosts {
        let settings = Settings::of_server(&format!("{}@{host}/", parts.user))?;
        let seed = settings.address();
        if let Some(seed) = seed.filter(|seed| !seeds.contains(seed)) {
            seeds.push(seed);
        }
        first.get_or_insert(settings);
    }
    let settings = first.ok_or_else(|| unusable("it has no host"))?;
    Ok(Target::Cluster(settings, seeds))
}

/// Reads the sentinels, and the name by which they know the primary.
fn sentinel(parts: &Parts<'_>) -> Result<Target, ConfigError> {
    let (mut service, mut username, mut password) = ("", "", "");
    for (name, value) in &parts.query {
        match *name {
            "sentinelServiceName" => service = value,
            "sentinelUsername" => username = value,
            "sentinelPassword" => password = value,
            // The name may be the rest of a password with a "?" in it.
            _ => {
                return Err(unusable(
                    "its query may only hold sentinelServiceName, sentinelUsername and \
                     sentinelPassword",
                ));
            }
        }
    }
    if service.is_empty() {
        return Err(unusable(
            "it does not name the primary: add ?sentinelServiceName=mymaster",
        ));
    }
    let watch = Settings::of_server(&format!("{username}:{password}@sentinel/"))?;
    let primary = format!("{}@primary/{}", parts.user, parts.database);
    let primary = Settings::of_server(&primary)?;
    let settings = Settings::of_sentinels(&parts.hosts, service, watch, primary)?;
    Ok(Target::Node(settings))
}

fn unknown(scheme: &str) -> ConfigError {
    // Other characters may belong to a password.
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let shown = if scheme.bytes().all(is_scheme) {
        format!(" {scheme:?}")
    } else {
        String::new()
    };
    unusable(format!(
        "unknown scheme{shown}; use redis, rediss, valkey or valkeys, alone or with -cluster or \
         -sentinel"
    ))
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Target, ConfigError> {
        Target::of(url, &Access::default())
    }

    fn seeds(url: &str) -> (Settings, Vec<String>) {
        match of(url).expect("a usable URL") {
            Target::Cluster(settings, seeds) => {
                let seeds = seeds.iter().map(Address::to_string).collect();
                (settings, seeds)
            }
            Target::Node(_) => panic!("a cluster"),
        }
    }

    #[test]
    fn several_nodes_are_named_in_two_ways() {
        let (Settings { config, .. }, named) =
            seeds("redis-cluster://app:p%40w@one:1,two,[::1]:3/");
        assert_eq!(named, ["one:1", "two:6379", "::1:3"]);
        assert_eq!(config.username.as_deref(), Some("app"));
        assert_eq!(config.password.as_deref(), Some("p@w"));

        let (_, named) = seeds("valkey-cluster://one:1?node=two:2&node=one:1&node=three:3");
        assert_eq!(named, ["one:1", "two:2", "three:3"]);
    }

    #[test]
    fn sentinels_their_own_user_and_the_name_of_the_primary() {
        let url = "redis-sentinel://app:p%40w@one,two:2,[::1]:3/4\
                   ?sentinelServiceName=main&sentinelUsername=watch&sentinelPassword=p%40ss";
        let Target::Node(Settings { config, .. }) = of(url).expect("a usable URL") else {
            panic!("one node");
        };
        assert_eq!(config.username.as_deref(), Some("app"));
        assert_eq!(config.password.as_deref(), Some("p@w"));
        assert_eq!(config.database, Some(4));
        let sentinels = format!("{:?}", config.server);
        for part in ["one", "26379", "two", "[::1]", "main", "watch", "p@ss"] {
            assert!(sentinels.contains(part), "{sentinels}");
        }
    }

    #[test]
    fn schemes_of_any_case() {
        for url in [
            "REDIS://one:1/",
            "Valkey://one:1",
            "Redis-Cluster://one:1",
            "redis-SENTINEL://one:1/?sentinelServiceName=main",
        ] {
            assert!(of(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn one_server_is_one_and_has_no_query() {
        for (url, advice) in [
            ("redis://one,two/", "redis-cluster://"),
            ("redis://app:secret@one:1,two:2/0", "redis-sentinel://"),
            ("redis://one?node=two:2", "redis-cluster://"),
            ("redis://one/?timeout=secret", "RedisStore::builder()"),
            ("redis://app:p?secret@one/", "%3F"),
            ("redis://app:1?secret@one/", "%3F"),
            ("redis://app:1#secret@one/", "%23"),
            ("redis-cluster://app:1#secret@one/", "%23"),
        ] {
            let mistake = of(url).err().expect(url).to_string();
            assert!(mistake.contains(advice), "{url}: {mistake}");
            assert!(!mistake.contains("secret"), "{mistake}");
        }
        for url in [
            "redis://one",
            "redis://one:1/3",
            "redis://:p%3Fw%23@[::1]:1/?",
        ] {
            assert!(of(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn an_unusable_url_is_reported_without_the_password() {
        for url in [
            "redis-cluster://",
            "redis-cluster://app:secret@/",
            "redis-cluster://app:secret@one:1,,two:2/",
            "redis-cluster://app:secret@one:99999/",
            "redis-cluster://app:secret@one/1",
            "redis-cluster://app:secret@one/?nodes=two",
            "redis-sentinel://app:secret@one/",
            "redis-sentinel://app:secret@one/?sentinelServiceName=",
            "redis-sentinel://app:secret@one:99999/?sentinelServiceName=main",
            "redis-sentinel://app:secret@one/?sentinelServiceName=main&other=secret",
            "redis-sentinel://app:secret@/?sentinelServiceName=main",
            "redis-sentinel://app:p?secret@one/?sentinelServiceName=main",
            "redis-sentinel://app:p?sentinelServiceName=main&secret&p@one/",
            "redis:/app:secret://@one/",
            "redis-://app:secret@one/",
            "redis-cluster-cluster://app:secret@one/",
        ] {
            let mistake = of(url).err().expect(url);
            assert!(!mistake.to_string().contains("secret"), "{mistake}");
        }
    }
}
