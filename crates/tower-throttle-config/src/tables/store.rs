//! The table `[store]`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Reader, Time, True, Variables};

/// Where buckets are kept. All texts may have `${NAME}` of the environment. Paths of files are relative
/// to the folder of this file.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    { "required": ["redis"] }, { "required": ["memory"] }, { "required": ["reader"] }
]))]
#[schemars(extend("dependentSchemas" = {
    "name": { "anyOf": [{ "required": ["memory"] }, { "required": ["redis"] }] },
    "clock": { "anyOf": [{ "required": ["memory"] }, { "required": ["redis"] }] },
    "capacity": { "anyOf": [{ "required": ["memory"] }] },
    "prefix": { "anyOf": [{ "required": ["redis"] }] },
    "secret": { "anyOf": [{ "required": ["redis"] }] },
    "timeout": { "anyOf": [{ "required": ["redis"] }] },
    "connections": { "anyOf": [{ "required": ["redis"] }] },
    "max_in_flight": { "anyOf": [{ "required": ["redis"] }] },
    "denial_cache_ttl": { "anyOf": [{ "required": ["redis"] }] },
    "password_file": { "anyOf": [{ "required": ["redis"] }] },
    "user_file": { "anyOf": [{ "required": ["password_file"] }] },
    "tls_authorities": { "anyOf": [{ "required": ["redis"] }] },
    "tls_server_name": { "anyOf": [{ "required": ["redis"] }] },
    "tls_client_certificate": { "anyOf": [{ "required": ["redis"] }] },
    "tls_client_key": { "anyOf": [{ "required": ["tls_client_certificate"] }] }
}))]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "some are for Redis")
)]
pub(crate) struct Store {
    /// The URL of a Redis server, a cluster or sentinels.
    pub(crate) redis: Option<Variables>,
    /// Keeps buckets in this process.
    #[expect(dead_code, reason = "it excludes the others")]
    memory: Option<True>,
    /// A store that the application registers.
    pub(crate) reader: Option<Reader>,
    /// The label `store` in metrics. Default: `redis` or `memory`.
    pub(crate) name: Option<Variables>,
    /// A clock of the application. Default: that of Redis, or of the machine for a store in memory.
    pub(crate) clock: Option<Reader>,
    /// How many buckets are kept at most. Default: 1000000.
    #[schemars(range(min = 1))]
    pub(crate) capacity: Option<usize>,
    /// The start of all keys in Redis. Default: `tt`.
    pub(crate) prefix: Option<Variables>,
    /// Hashes callers' keys, so that a reader of Redis cannot test guesses. Default: none.
    pub(crate) secret: Option<Variables>,
    /// How long a check may take in all. Default: 50ms.
    pub(crate) timeout: Option<Time>,
    /// How many connections each node has. Default: 1.
    #[schemars(range(min = 1))]
    pub(crate) connections: Option<usize>,
    /// How many checks wait for Redis at a time; in a cluster, for each node. Default: 4096.
    #[schemars(range(min = 1))]
    pub(crate) max_in_flight: Option<usize>,
    /// How long a denial is repeated without asking Redis. `0s` disables that. Default: 1s.
    pub(crate) denial_cache_ttl: Option<Time>,
    /// A file with the password, which is read again for each connection. Default: the password in the
    /// URL.
    pub(crate) password_file: Option<Variables>,
    /// A file with the user, which is read with that of the password. Default: the user in the URL.
    pub(crate) user_file: Option<Variables>,
    /// A PEM file of the certificate authorities that are trusted, in place of the system's. Default:
    /// those of the system.
    pub(crate) tls_authorities: Option<Variables>,
    /// The name in the certificate of each server. Default: the host of the connection.
    pub(crate) tls_server_name: Option<Variables>,
    /// A PEM file with the certificate that servers ask for. Default: none.
    pub(crate) tls_client_certificate: Option<Variables>,
    /// A PEM file with the key of that certificate. Default: the file of the certificate.
    pub(crate) tls_client_key: Option<Variables>,
}
