//! Redis behind TLS, with a certificate of a private authority.
//!
//! An environment variable names the trusted authorities, so this needs another process.

use std::{
    env,
    error::Error,
    fs,
    iter::successors,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicU32,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};
use tower_throttle::RedisStore;

use crate::support::prelude::*;

/// Names the file of trusted authorities to the other process.
const TRUSTED: &str = "TT_TRUSTED";

/// Runs itself in a process that trusts one file only.
#[test]
fn only_a_server_with_a_certificate_of_a_known_authority_decides() {
    if let Some(trusted) = env::var_os(TRUSTED) {
        let runtime = Runtime::new().expect("a runtime");
        return runtime.block_on(talk_to_servers(Path::new(&trusted)));
    }
    let name = format!("tower-throttle-{}-authorities.pem", std::process::id());
    let file: PathBuf = env::temp_dir().join(name);
    let test = "tls::only_a_server_with_a_certificate_of_a_known_authority_decides";
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(TRUSTED, &file)
        .env("SSL_CERT_FILE", &file)
        .env_remove("SSL_CERT_DIR")
        .output();
    let _ = fs::remove_file(&file);
    let output = output.expect("another process");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("7 cases"), "{shown}");
}

async fn talk_to_servers(trusted: &Path) {
    let [known, stranger, namesake] = ["known", "stranger", "known"].map(authority);
    let without = hasty()
        .connect("rediss://localhost/")
        .expect_err("no trusted authority");
    assert!(without.to_string().contains("SSL_CERT_FILE"), "{without}");
    println!("no authority at all: a mistake at build time ... ok");
    fs::write(trusted, known.pem()).expect("a file");
    let redis = RedisServer::start();

    let localhost = "localhost";
    let servers = [
        (
            "an unknown authority",
            "rediss",
            Some((&stranger, localhost)),
            "no trusted authority has signed",
        ),
        (
            "an authority of the same name",
            "rediss",
            Some((&namesake, localhost)),
            "not signed by the trusted authority of that name",
        ),
        (
            "the name of another server",
            "rediss",
            Some((&known, "elsewhere")),
            "the certificate names elsewhere",
        ),
        (
            "TLS without being configured",
            "redis",
            Some((&known, localhost)),
            "write rediss://",
        ),
        ("no TLS", "rediss", None, "write redis://"),
    ];
    for (what, scheme, certificate, because) in servers {
        let tls = certificate.map(|(authority, name)| certified(authority, name));
        never_decides(scheme, &Proxy::start(&redis, tls).await, because).await;
        assert_eq!(redis.keys(), [""; 0], "{what}");
        println!("{what}: never used ... ok");
    }
    decides(&Proxy::start(&redis, Some(certified(&known, localhost))).await).await;
    assert_eq!(redis.keys().len(), 1);
    redis.assert_all_keys_expire();
    println!("a known authority: the store decides ... ok");
    println!("{} cases", servers.len() + 2);
}

async fn decides(proxy: &Proxy) {
    let limiter = limiter(&proxy.connect("rediss"), OnStoreFailure::Deny);
    for is_allowed in [true, true, false] {
        let decision = limiter.check("ann").await.expect("a decision");
        assert_eq!(decision.is_allowed(), is_allowed);
        assert_eq!(decision.source(), Source::Store);
    }
}

async fn never_decides(scheme: &str, proxy: &Proxy, because: &str) {
    let store = proxy.connect(scheme);
    let denying = limiter(&store, OnStoreFailure::Deny);
    let local = limiter(&store, OnStoreFailure::default());
    let error = denying.check("ann").await.expect_err("no store");
    let shown = shown(&error);
    assert!(shown.contains(because), "{shown}");

    eventually_async("another attempt to connect, and one more", async || {
        denying.check("ann").await.expect_err("no store");
        let decision = local.check("ann").await.expect("a decision");
        assert_eq!(decision.source(), Source::Local);
        proxy.attempts.load(Ordering::SeqCst) > 2
    })
    .await;
}

fn limiter(store: &RedisStore, choice: OnStoreFailure) -> Limiter {
    let policy = Policy::new("api", FixedWindow::per_day(2)).on_store_failure(choice);
    Limiter::new(store.clone(), policy)
}

/// Shows an error and its sources.
fn shown(error: &dyn Error) -> String {
    let sources = successors(Some(error), |error| (*error).source());
    sources.map(|error| format!("{error}: ")).collect()
}

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority(name: &str) -> Authority {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    Authority::self_signed(parameters, key).expect("an authority")
}

/// Returns the TLS side of a server with a certificate for this name.
fn certified(by: &Authority, name: &str) -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new([name.to_owned()]).expect("parameters");
    let certificate = parameters.signed_by(&key, by).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into());
    Arc::new(config.expect("a server")).into()
}

/// A proxy before a Redis, which terminates TLS.
struct Proxy {
    port: u16,
    attempts: Arc<AtomicU32>,
}

impl Proxy {
    async fn start(redis: &RedisServer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let attempts = Arc::new(AtomicU32::new(0));
        let (counter, behind) = (Arc::clone(&attempts), redis.port());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => relay(stream, behind).await,
                        Some(tls) => relay(tls.accept(stream).await?, behind).await,
                    }
                });
            }
        });
        Self { port, attempts }
    }

    fn connect(&self, scheme: &str) -> RedisStore {
        let url = format!("{scheme}://localhost:{}/", self.port);
        store_at(&url)
    }
}

async fn relay(mut client: impl AsyncRead + AsyncWrite + Unpin, to: u16) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
