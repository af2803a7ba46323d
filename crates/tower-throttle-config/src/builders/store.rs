//! The table `[store]`.

use std::{fmt, sync::Arc};

use super::reading::Reading;
use crate::field::Field;
use tower_throttle::{
    Clock, ConfigError, MemoryStore, MemoryStoreBuilder, control::Control, store::Store,
};
#[cfg(feature = "redis")]
use tower_throttle::{RedisStore, RedisStoreBuilder};

/// Where the file says to keep buckets.
pub(crate) enum StoreChoice {
    Memory(MemoryStoreBuilder),
    #[cfg(feature = "redis")]
    Redis(RedisStoreBuilder, String),
    Registered(Arc<dyn Store>),
}

impl StoreChoice {
    /// Starts the store: once for a file, so that all its layers share one pool of connections.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no Tokio runtime for a store that needs one.
    pub(crate) fn open(self) -> Result<OpenStore, ConfigError> {
        Ok(match self {
            Self::Memory(builder) => OpenStore::Memory(builder.build()),
            #[cfg(feature = "redis")]
            Self::Redis(builder, url) => OpenStore::Redis(builder.connect(&url)?),
            Self::Registered(store) => OpenStore::Registered(store),
        })
    }
}

/// A store that was started.
pub(crate) enum OpenStore {
    Memory(MemoryStore),
    #[cfg(feature = "redis")]
    Redis(RedisStore),
    Registered(Arc<dyn Store>),
}

impl OpenStore {
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            #[cfg(feature = "redis")]
            Self::Redis(store) => Arc::new(store.clone()),
            Self::Registered(store) => Arc::clone(store),
        }
    }

    /// Returns its control document, if the type of the store has one.
    pub(crate) fn control(&self) -> Option<Control> {
        match self {
            Self::Memory(store) => Some(store.control()),
            #[cfg(feature = "redis")]
            Self::Redis(store) => Some(store.control()),
            Self::Registered(_) => None,
        }
    }

    /// Ends it, unless the application has registered it.
    pub(crate) async fn shutdown(&self) {
        #[cfg(feature = "redis")]
        if let Self::Redis(store) = self {
            store.shutdown().await;
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

/// Reads the table. It is in memory if there is none, and after a mistake.
/// `url`: in place of that in the file.
pub(super) fn read(reading: &mut Reading<'_>, file: &Field<'_>, url: Option<&str>) -> StoreChoice {
    let in_memory = || StoreChoice::Memory(MemoryStore::builder());
    let Some(table) = file.get("store") else {
        return in_memory();
    };
    if let Some(field) = table.get("reader") {
        let registered = &reading.readers.store;
        let store = reading.named(Some(&field), registered, "store");
        return store.map_or_else(in_memory, |store| {
            StoreChoice::Registered(Arc::clone(store))
        });
    }
    let registered = &reading.readers.clock;
    let clock = reading.named(table.get("clock").as_ref(), registered, "clock");
    let clock = clock.map(|clock| Arc::new(Arc::clone(clock)));
    match table.get("redis") {
        Some(field) => redis(reading, &table, &field, url, clock).unwrap_or_else(in_memory),
        None => StoreChoice::Memory(memory(reading, &table, clock)),
    }
}

type SharedClock = Arc<Arc<dyn Clock>>;

fn memory(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    clock: Option<SharedClock>,
) -> MemoryStoreBuilder {
    let mut builder = MemoryStore::builder();
    if let Some(capacity) = table.get("capacity").and_then(|field| field.whole()) {
        builder = builder.capacity(usize::try_from(capacity).unwrap_or(usize::MAX));
    }
    if let Some(name) = expanded(reading, table, "name") {
        builder = builder.name(name);
    }
    match clock {
        Some(clock) => builder.clock(clock),
        None => builder,
    }
}

/// Returns a text with the values of the variables that it names.
fn expanded(reading: &mut Reading<'_>, table: &Field<'_>, name: &str) -> Option<String> {
    let expanded = table.get(name)?.expanded();
    Some(reading.problems.keep(expanded)?.into_owned())
}

#[cfg(feature = "redis")]
fn redis(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    url: &Field<'_>,
    other: Option<&str>,
    clock: Option<SharedClock>,
) -> Option<StoreChoice> {
    let count = |name: &str| {
        let number = table.get(name)?.whole()?;
        Some(usize::try_from(number).unwrap_or(usize::MAX))
    };
    let time = |name: &str| table.get(name)?.duration();
    let mut builder = RedisStore::builder();
    if let Some(name) = expanded(reading, table, "name") {
        builder = builder.name(name);
    }
    if let Some(prefix) = expanded(reading, table, "prefix") {
        builder = builder.prefix(prefix);
    }
    if let Some(secret) = expanded(reading, table, "secret") {
        builder = builder.secret(secret);
    }
    if let Some(timeout) = time("timeout") {
        builder = builder.timeout(timeout);
    }
    if let Some(connections) = count("connections") {
        builder = builder.connections(connections);
    }
    if let Some(checks) = count("max_in_flight") {
        builder = builder.max_in_flight(checks);
    }
    if let Some(ttl) = time("denial_cache_ttl") {
        builder = builder.denial_cache_ttl(ttl);
    }
    if let Some(clock) = clock {
        builder = builder.clock(clock);
    }
    let url_text = match other {
        Some(other) => other.to_owned(),
        None => reading.problems.keep(url.expanded())?.into_owned(),
    };
    if let Err(error) = builder.validate(&url_text) {
        let names = super::blame::fields(&error);
        let field = super::blame::first_of(table, names);
        reading
            .problems
            .push(field.unwrap_or_else(|| url.clone()).error(&error));
    }
    Some(StoreChoice::Redis(builder, url_text))
}

#[cfg(not(feature = "redis"))]
fn redis(
    reading: &mut Reading<'_>,
    _: &Field<'_>,
    url: &Field<'_>,
    _: Option<&str>,
    _: Option<SharedClock>,
) -> Option<StoreChoice> {
    reading.report_feature(url, "`redis`", "redis");
    None
}
