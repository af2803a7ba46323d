//! [`Limits`]: the layers and limiters of a file.

use std::{collections::BTreeMap, fmt, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::spawn_blocking, time::sleep};

use super::{Changes, Config, ConfigErrors, Explanation, ReloadError, Status, shared::Shared};
use crate::suggest::proposal;
use tower_throttle::{
    Limiter, RateLimitLayer, RequestHead,
    control::Control,
    metrics::{self, Snapshot},
    store::Store,
};

/// The layers and limiters of a [`Config`], which can be changed while requests are served.
///
/// ```no_run
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tower_throttle_config::Config;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Config::from_path("limits.toml")?.build()?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(limits.layer("default")?);
/// limits.watch(Duration::from_secs(2))?;
/// # Ok(()) }
/// ```
///
/// **A new version of the file** is read, checked and built in full before it has any effect. Then
/// each layer and limiter takes its new settings at once: a request uses either the former ones or
/// the new ones, from start to end. Layers and limiters change one right after the other. Waits,
/// permits and holds end under the version that they began with. A
/// [`Responder`](tower_throttle::Responder) keeps the settings that its layer had when it was made.
///
/// **Buckets are kept** if a policy keeps its name and its algorithm: callers keep what they have
/// used, under the new numbers. [`Config::diff`] returns the effect on each policy. Counts in
/// [metrics](tower_throttle::metrics) continue, too.
///
/// **A wrong version** has no effect. It is logged once, with all mistakes, and shown by
/// [`status`](Self::status) and by the metrics until the file is right again.
///
/// **What cannot change** without a restart: the table `[store]`. A layer that is new has no effect
/// until code asks for it: it is in the [`Changes`]. A version without a layer or limiter that the
/// process uses is rejected, as the next start with it would fail.
///
/// Clones share everything.
#[derive(Clone)]
pub struct Limits {
    shared: Arc<Shared>,
    /// Counted, to notice when nothing uses the limits any more.
    _in_use: Arc<()>,
}

impl Config {
    /// Builds all layers and limiters of the file, and its store.
    ///
    /// It may wait for the file system. A store in Redis needs a Tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns all mistakes.
    pub fn build(self) -> Result<Limits, ConfigErrors> {
        let shared = Arc::new(Shared::new(&self)?);
        Ok(Limits {
            _in_use: Arc::clone(&shared.in_use),
            shared,
        })
    }
}

impl Limits {
    /// Returns a layer by its name. A file without `[layer.NAME]` and `[limiter.NAME]` has one of
    /// the name `default`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such layer.
    pub fn layer(&self, name: &str) -> Result<RateLimitLayer, UnknownName> {
        let layers = &self.shared.live().layers;
        find(layers, "layer", name)
    }

    /// Returns a limiter by its name.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such limiter.
    pub fn limiter(&self, name: &str) -> Result<Limiter, UnknownName> {
        let limiters = &self.shared.live().limiters;
        find(limiters, "limiter", name)
    }

    /// Asks each layer of the version in force, and then each limiter.
    pub(super) fn each<T>(
        &self,
        of_layer: impl Fn(&RateLimitLayer) -> T,
        of_limiter: impl Fn(&Limiter) -> T,
    ) -> Vec<T> {
        let (layers, limiters): (Vec<_>, Vec<_>) = {
            // Not held while code of the application runs.
            let live = self.shared.live();
            let layers = live.layers.values().map(|(layer, _)| layer.clone());
            let limiters = live.limiters.values().map(|(limiter, _)| limiter.clone());
            (layers.collect(), limiters.collect())
        };
        let layers = layers.iter().map(of_layer);
        layers.chain(limiters.iter().map(of_limiter)).collect()
    }

    /// Explains what a layer does with a request: which policies apply, which callers they charge,
    /// and how much. It asks no store, and charges nothing.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::RequestHead;
    /// use tower_throttle_config::Config;
    ///
    /// let limits = Config::from_toml(r#"
    ///     version = 1
    ///     [[policy]]
    ///     name = "burst"
    ///     quota = "10 per second"
    ///     key = "header:x-api-key"
    ///     when = { path = "/api/**" }
    /// "#)?.build()?;
    /// let request = Request::get("/login").body(())?;
    /// let explained = limits.explain("default", &RequestHead::from(&request))?;
    /// let condition = &explained.policies[0].conditions[0];
    /// assert_eq!((&*condition.text, condition.holds), (r#"path = "/api/**""#, Some(false)));
    /// assert!(!explained.layer.policies[0].applies);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such layer.
    pub fn explain(&self, layer: &str, head: &RequestHead<'_>) -> Result<Explanation, UnknownName> {
        let explained = self.layer(layer)?.explain(head);
        let config = self.shared.live().config.clone();
        Ok(config.explain(layer, explained, head))
    }

    /// Returns the store of the file.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.shared.open.store)
    }

    /// Reads the file again, and applies it if it has changed: on `SIGHUP`, or from a page for
    /// operators.
    ///
    /// It takes the file when two readings in a row agree, 50 ms apart. Call it inside a Tokio runtime
    /// with timers.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not applied. The limits stay as they are then.
    pub async fn reload(&self) -> Result<Changes, ReloadError> {
        const PAUSE: Duration = Duration::from_millis(50);
        const MOST_READINGS: usize = 40;

        Handle::try_current().map_err(|_| ReloadError::NoRuntime)?;
        let mut before = None;
        for reading in 0..MOST_READINGS {
            if reading > 0 {
                sleep(PAUSE).await;
            }
            let shared = Arc::clone(&self.shared);
            let reloaded = spawn_blocking(move || shared.reload(before)).await;
            match reloaded.map_err(|_| ReloadError::NoRuntime)?? {
                ControlFlow::Break(changes) => return Ok(changes),
                ControlFlow::Continue(content) => before = Some(content),
            }
        }
        Err(ReloadError::Unsettled)
    }

    /// Watches the file: reads it at this interval, at least 10 ms, and applies it when it has
    /// changed and two readings in a row agree.
    ///
    /// A version in which a table or a field is gone is applied when the file has been the same for
    /// five seconds, as half a file that a slow writer has begun may have no mistake. A policy that is
    /// gone is logged as a warning. [`reload`](Self::reload) does not wait for that, and a file of
    /// lists is not asked: move a new one into place.
    ///
    /// It reads the whole content, so it sees a file that is moved into place, a link that
    /// points elsewhere, as of a Kubernetes ConfigMap, a file that is written in place, and one on a
    /// network file system. A file that is gone or wrong changes nothing: see
    /// [`status`](Self::status).
    ///
    /// Watching continues until all of these limits, their layers and limiters are dropped, or the
    /// runtime ends. Call it again to change the interval.
    ///
    /// # Errors
    ///
    /// Returns an error outside a Tokio runtime, and if the limits are not from a file.
    pub fn watch(&self, interval: Duration) -> Result<(), ReloadError> {
        const SHORTEST: Duration = Duration::from_millis(10);

        if self.shared.files.is_none() {
            return Err(ReloadError::NoFile);
        }
        let runtime = Handle::try_current().map_err(|_| ReloadError::NoRuntime)?;
        let shared = Arc::clone(&self.shared);
        let interval = interval.max(SHORTEST);
        let task = runtime.spawn(async move {
            while shared.is_used() {
                let polling = Arc::clone(&shared);
                // It fails only when the runtime ends: a panic of a check is a rejection.
                let _ = spawn_blocking(move || polling.poll()).await;
                sleep(interval).await;
            }
        });
        if let Some(former) = self.shared.live().watcher.replace(task.abort_handle()) {
            former.abort();
        }
        Ok(())
    }

    /// Replaces the limits by those of another configuration, such as one that is not in a file.
    /// The [readers](Config::readers) are those of the first one. It may wait for the file system.
    ///
    /// While a file is watched, its next change replaces this one.
    ///
    /// # Errors
    ///
    /// Returns all mistakes. The limits stay as they are then.
    pub fn replace(&self, config: Config) -> Result<Changes, ConfigErrors> {
        self.shared.replace(config)
    }

    /// Returns the control document of the file's store: what operators change at run time, on top of
    /// the file. All layers and limiters follow it from then on, in each version of the file.
    /// `None` if the store is one that the application has [registered](super::Readers::store).
    ///
    /// Call it inside a Tokio runtime with timers, which looks at the document.
    #[must_use]
    pub fn control(&self) -> Option<Control> {
        if let Some(control) = &self.shared.live().control {
            return Some(control.clone());
        }
        let control = self.shared.open.control.as_ref()?();
        self.follow(&control).ok()?;
        Some(control)
    }

    /// Lets all layers and limiters follow a control document from now on, in each version of the file:
    /// for a store that the application has [registered](super::Readers::store). The first document
    /// stays.
    ///
    /// # Errors
    ///
    /// Returns an error if the document calls keys by other names than the store does. Then nothing
    /// follows it.
    pub fn follow(&self, control: &Control) -> Result<(), ConfigErrors> {
        let store = &self.shared.open.store;
        self.shared.live().follow(control, store)
    }

    /// Stops watching the file, and ends the store of the file: waits up to a second until Redis has
    /// what was refunded and settled, and then closes its connections. See
    /// [`RedisStore::shutdown`](tower_throttle::RedisStore::shutdown).
    ///
    /// Call it last, when no request is being served. Without it, the units of this process stay taken
    /// after each deployment: permits for 30 seconds, leased units indefinitely. If the application
    /// has [registered](super::Readers::store) the store, the application must shut it down.
    ///
    /// ```no_run
    /// # use tower_throttle_config::Limits;
    /// # async fn serve(limits: Limits) -> Result<(), std::io::Error> {
    /// # let (listener, app) = (tokio::net::TcpListener::bind("127.0.0.1:0").await?, axum::Router::new());
    /// # async fn ctrl_c() {}
    /// axum::serve(listener, app).with_graceful_shutdown(ctrl_c()).await?;
    /// limits.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) {
        let watcher = self.shared.live().watcher.take();
        if let Some(watcher) = watcher {
            watcher.abort();
        }
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.shared.open.redis {
            redis.shutdown().await;
        }
    }

    /// Returns which version is in force, and whether a newer one was rejected.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.live().status()
    }

    /// Returns the numbers of all layers and limiters: see [`metrics`](tower_throttle::metrics).
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.each(RateLimitLayer::metrics, Limiter::metrics)
    }

    /// Writes all numbers as a text for Prometheus, and those of the configuration:
    /// [`PROMETHEUS_CONTENT_TYPE`](tower_throttle::metrics::PROMETHEUS_CONTENT_TYPE) is its type.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = metrics::to_prometheus(&self.snapshots());
        self.shared.live().add_numbers_to(&mut text);
        text
    }

    /// Does the same as [`to_prometheus`](Self::to_prometheus) in the format of OpenMetrics 1.0.
    #[must_use]
    pub fn to_openmetrics(&self) -> String {
        let mut text = metrics::to_openmetrics(&self.snapshots());
        self.shared.live().add_numbers_to(&mut text);
        text
    }

    /// Returns a publisher of all numbers through the facade `metrics`, with those of the
    /// configuration. It keeps these limits.
    #[cfg(feature = "metrics-facade")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics-facade")))]
    #[must_use]
    pub fn publisher(&self) -> metrics::Publisher {
        let limits = self.clone();
        metrics::Publisher::new(move || {
            limits.shared.live().publish();
            limits.snapshots()
        })
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.shared.live();
        f.debug_struct("Limits")
            .field("layers", &live.layers.keys())
            .field("limiters", &live.limiters.keys())
            .field("status", &live.status())
            .finish()
    }
}

/// The error for a name that no layer or limiter has. It displays the names that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(String);

fn find<T: Clone, B>(
    all: &BTreeMap<String, (T, B)>,
    kind: &'static str,
    name: &str,
) -> Result<T, UnknownName> {
    let found = all.get(name).map(|(found, _)| found.clone());
    found.ok_or_else(|| {
        let known: Vec<_> = all.keys().map(String::as_str).collect();
        let proposal = proposal(name, &known);
        UnknownName(format!("the file has no {kind} {name:?}{proposal}"))
    })
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownName {}

#[cfg(all(test, unix))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
