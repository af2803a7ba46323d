//! The table `[store]`.

use std::{fmt, sync::Arc};
#[cfg(feature = "redis")]
use std::{io, path::Path};

#[cfg(feature = "redis")]
use super::blame;
use super::reading::{Reading, field, reader, set};
#[cfg(feature = "redis")]
use crate::file;
use crate::{place::FilePlace, tables};
use tower_throttle::{
    Clock, ConfigError, MemoryStore, MemoryStoreBuilder, control::Control, store::Store,
};
#[cfg(feature = "redis")]
use tower_throttle::{RedisStore, RedisStoreBuilder};

/// Where the file keeps buckets.
pub(crate) enum StoreChoice {
    Memory(MemoryStoreBuilder),
    #[cfg(feature = "redis")]
    Redis(Box<RedisStoreBuilder>, String),
    Registered(Arc<dyn Store>),
}

impl StoreChoice {
    /// Starts the store: once for a file, so that all its layers share one pool of connections.
    ///
    /// # Errors
    ///
    /// Returns an error without a Tokio runtime, if the store needs one.
    pub(crate) fn open(self) -> Result<OpenStore, ConfigError> {
        Ok(match self {
            Self::Memory(builder) => {
                let store = builder.build();
                let mut open = OpenStore::of(Arc::new(store.clone()));
                open.control = Some(Box::new(move || store.control()));
                open
            }
            #[cfg(feature = "redis")]
            Self::Redis(builder, url) => {
                let redis = builder.connect(&url)?;
                let mut open = OpenStore::of(Arc::new(redis.clone()));
                open.redis = Some(redis.clone());
                open.control = Some(Box::new(move || redis.control()));
                open
            }
            Self::Registered(store) => OpenStore::of(store),
        })
    }
}

/// A store that was started.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    /// Makes its control document, which runs a task, if the type of the store has one.
    pub(crate) control: Option<Box<dyn Fn() -> Control + Send + Sync>>,
    /// The Redis store that this process has started, and must end.
    #[cfg(feature = "redis")]
    pub(crate) redis: Option<RedisStore>,
}

impl OpenStore {
    fn of(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            control: None,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }
}

impl fmt::Debug for StoreChoice {
    /// Does not show the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(builder) => builder.fmt(f),
            #[cfg(feature = "redis")]
            Self::Redis(builder, _) => builder.fmt(f),
            Self::Registered(store) => store.fmt(f),
        }
    }
}

/// Reads the table. The store is in memory without a table, and after a mistake. `url`: in place of
/// that in the file.
pub(super) fn read(reading: &mut Reading<'_>) -> StoreChoice {
    let in_memory = || StoreChoice::Memory(MemoryStore::builder());
    let Some(table) = &reading.file().store else {
        return in_memory();
    };
    let at = FilePlace::root().to("store");
    if table.reader.is_some() {
        let store = reader!(reading, at, table, reader, store);
        return store.map_or_else(in_memory, StoreChoice::Registered);
    }
    let clock = reader!(reading, at, table, clock).map(Arc::new);
    let name = reading.expanded(field!(at, table, name));
    if table.redis.is_some() {
        return redis(reading, table, name, clock).unwrap_or_else(in_memory);
    }
    let mut builder = MemoryStore::builder();
    set!(
        builder,
        capacity = table.capacity,
        name = name,
        clock = clock
    );
    StoreChoice::Memory(builder)
}

#[cfg(feature = "redis")]
fn redis(
    reading: &mut Reading<'_>,
    table: &tables::Store,
    name: Option<String>,
    clock: Option<Arc<Arc<dyn Clock>>>,
) -> Option<StoreChoice> {
    let at = FilePlace::root().to("store");
    let mut builder = RedisStore::builder();
    set!(
        builder,
        name = name,
        prefix = reading.expanded(field!(at, table, prefix)),
        secret = reading.expanded(field!(at, table, secret)),
        timeout = table.timeout.map(|time| time.0),
        connections = table.connections,
        max_in_flight = table.max_in_flight,
        denial_cache_ttl = table.denial_cache_ttl.map(|time| time.0),
        clock = clock,
        credentials = credentials(reading, &at, table),
        tls_authorities = reading.path(field!(at, table, tls_authorities)),
        tls_server_name = reading.expanded(field!(at, table, tls_server_name)),
        tls_client_certificate = reading.path(field!(at, table, tls_client_certificate)),
        tls_client_key = reading.path(field!(at, table, tls_client_key)),
    );
    let url = match &reading.config.redis_url {
        Some(url) => url.clone(),
        None => reading.expanded(field!(at, table, redis))?,
    };
    if let Err(error) = builder.validate(&url) {
        let fields = [blame::fields(&error), &["redis"]].concat();
        reading.report_in(&at, &fields, &error);
    }
    Some(StoreChoice::Redis(Box::new(builder), url))
}

/// Returns what reads the files of the user and the password. They are read now, too: a wrong path is a
/// mistake in the file.
#[cfg(feature = "redis")]
fn credentials(
    reading: &mut Reading<'_>,
    at: &FilePlace,
    table: &tables::Store,
) -> Option<impl Fn() -> io::Result<(String, String)> + use<>> {
    let user = reading.path(field!(at, table, user_file));
    let password = reading.path(field!(at, table, password_file))?;
    for (field, path) in [
        ("user_file", user.as_ref()),
        ("password_file", Some(&password)),
    ] {
        if let Some(Err(error)) = path.map(|path| first_line(path)) {
            let message = format!("{error}; make it readable, or name another file");
            reading.report(&at.to(&field), "credentials-file", message);
        }
    }
    Some(move || {
        let user = user.as_deref().map_or(Ok(String::new()), first_line)?;
        Ok((user, first_line(&password)?))
    })
}

/// Returns the text of a file of one line.
#[cfg(feature = "redis")]
fn first_line(path: &Path) -> io::Result<String> {
    let named = |why: &str| io::Error::other(format!("cannot read {} ({why})", path.display()));
    let bytes = file::read(path, MAX_SECRET_BYTES).map_err(|error| named(&error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| named("it is not UTF-8"))?;
    match text.lines().next() {
        None | Some("") => Err(named("it is empty")),
        Some(line) => Ok(line.to_owned()),
    }
}

/// More than any token has.
#[cfg(feature = "redis")]
const MAX_SECRET_BYTES: u64 = 64 << 10;

#[cfg(not(feature = "redis"))]
fn redis(
    reading: &mut Reading<'_>,
    _: &tables::Store,
    _: Option<String>,
    _: Option<Arc<Arc<dyn Clock>>>,
) -> Option<StoreChoice> {
    reading.report_feature(
        &FilePlace::root().to("store").to("redis"),
        "`redis`",
        "redis",
    );
    None
}
