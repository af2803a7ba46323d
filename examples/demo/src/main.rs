//! A server to try every kind of limit on, with a page for the browser.
//!
//! ```text
//! cargo run -p demo
//! ```
//!
//! Then open <http://127.0.0.1:3000>, or:
//!
//! ```text
//! for n in $(seq 12); do curl -si http://127.0.0.1:3000/api/token-bucket | grep -iE '^(HTTP|ratelimit|retry)'; done
//! ```
//!
//! Twelve at once, of which eleven are held until their turn and one is denied;
//! and three that take a while, of which two go on at a time:
//!
//! ```text
//! seq 12 | xargs -P12 -I{} curl -so /dev/null -w '%{http_code} after %{time_total} s\n' http://127.0.0.1:3000/api/paced
//! seq 3 | xargs -P3 -I{} curl -sN 'http://127.0.0.1:3000/api/concurrency?seconds=3'
//! ```
//!
//! With `-- --redis redis://127.0.0.1/` the buckets are in Redis: start it
//! twice, with two `--listen` addresses, and both processes share them. The page can cut the
//! link to that Redis: the process then decides by itself (`x-decided-by` says so) until it is up.
//!
//! With `-- --traffic steady`, or `burst`, or `attack`, it sends requests to itself, as the
//! switch on the page does. The admin page at `/admin` answers to this machine only.
//!
//! With `-- --config examples/demo/limits.toml` the limits are those of a file. Change it, and
//! the demo applies the change within a few seconds.
//!
//! Ctrl-C lets answers end that are under way; a second one does not.
//!
//! With `RUST_LOG=tower_throttle=debug` it logs each denial.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod app;
mod guard;
mod history;
mod in_code;
mod limits;
mod look;
mod options;
mod outage;
mod page;
mod routes;
mod settled;
mod slow;
mod switches;
mod traffic;

use std::{error::Error, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use app::App;
use history::History;
use limits::Limits;
use options::Options;
use outage::Outage;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};
use tower_throttle::{MemoryStore, RedisStore, store::Store};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};
use traffic::Traffic;

#[tokio::main]
async fn main() {
    log();
    let options = Options::from_command_line();
    if let Err(error) = serve(&options).await {
        eprintln!("demo: {error}");
        std::process::exit(1);
    }
}

/// Logs what `RUST_LOG` selects, as in `tower_throttle=debug,info`. Without it, logs what an
/// operator must not miss.
fn log() {
    let wanted = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = wanted.parse().unwrap_or_else(|mistake| {
        eprintln!("demo: RUST_LOG={wanted:?}: {mistake}");
        Targets::new().with_default(LevelFilter::INFO)
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = lines.with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
}

/// A machine that runs a demo often does much else, such as compiling. Then Redis may take
/// longer than the default of 50 ms, and each process would decide by itself.
const DEADLINE: Duration = Duration::from_millis(500);

/// Time for the longest answer, and some more. A connection that still exists then has sent
/// half a request.
const PATIENCE: Duration = Duration::from_secs(slow::MOST_SECONDS + 5);

async fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    let (outage, redis) = connect(options).await?;
    let limits = match (&options.config, &redis) {
        (Some(file), _) => Limits::from_file(file)?,
        (None, Some(redis)) => {
            let store: Arc<dyn Store> = Arc::new(redis.clone());
            Limits::in_code(&store, redis.control(), "Redis")?
        }
        (None, None) => {
            let memory = MemoryStore::new();
            let control = memory.control();
            let store: Arc<dyn Store> = Arc::new(memory);
            Limits::in_code(&store, control, "memory")?
        }
    };
    // Before the first answer: until then, a signal ends the process at once.
    let mut stop_signal = stop_signal()?;
    let listener = TcpListener::bind(&options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("buckets are in {}; stop with Ctrl-C", limits.store_name);
    println!("the admin page is at /admin, for this machine only");

    let traffic = Traffic::start(address, options.traffic);
    let (stop, stopping) = oneshot::channel::<()>();
    let app = routes::router(App {
        limits: limits.clone(),
        history: Arc::new(History::default()),
        traffic: traffic.clone(),
        outage,
    })?;
    let server = axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(async { drop(stopping.await) });
    let mut server = pin!(server.into_future());
    tokio::select! {
        served = &mut server => return Ok(served?),
        () = stop_signal() => drop(stop.send(())),
    }
    traffic.stop();
    println!("stopping when all is answered; at once with another Ctrl-C");

    let end = async {
        if let Ok(served) = timeout(PATIENCE, server).await {
            served?;
        }
        limits.shutdown().await;
        if let Some(redis) = redis {
            redis.shutdown().await;
        }
        Ok(())
    };
    tokio::select! {
        ended = end => ended,
        () = stop_signal() => Err("stopped twice: some requests were not answered".into()),
    }
}

/// Connects to Redis, if that is wanted, through the proxy of the outage switch.
async fn connect(options: &Options) -> Result<(Outage, Option<RedisStore>), Box<dyn Error>> {
    let Some(url) = &options.redis_url else {
        let why = match options.config {
            Some(_) => {
                "The store is that of the file. Start the demo with --redis URL in place of --config to get this switch."
            }
            None => {
                "The buckets are in memory, which has no outages. Start the demo with --redis redis://127.0.0.1/ to get this switch."
            }
        };
        return Ok((Outage::None(why), None));
    };
    let (url, outage) = Outage::start(url).await?;
    let redis = RedisStore::builder().timeout(DEADLINE).connect(&url)?;
    Ok((outage, Some(redis)))
}

/// Waits for Ctrl-C, or SIGTERM from a supervisor. No signal from now on is missed.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl AsyncFnMut()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move || {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

/// Waits for Ctrl-C. No signal from now on is missed.
#[cfg(windows)]
fn stop_signal() -> io::Result<impl AsyncFnMut()> {
    let mut interrupted = tokio::signal::windows::ctrl_c()?;
    Ok(async move || drop(interrupted.recv().await))
}
