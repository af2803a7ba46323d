//! Redis with TLS of its own: the settings for it, and the sentence for each mistake.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use tower_throttle::{RedisStore, RedisStoreBuilder};

use crate::{
    support::{port::Port, prelude::*, sentinel::Sentinel},
    tls::{Authority, authority},
};

/// A folder of PEM files.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("tower-throttle-tls-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in one step, as those do that renew certificates.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.join("new"), text).expect("a file");
        fs::rename(self.0.join("new"), self.0.join(name)).expect("a file");
    }

    /// Writes `name.pem` and `name.key`: a certificate for `host`, signed by an authority.
    fn certify(
        &self,
        name: &str,
        by: &Authority,
        host: &str,
        change: impl Fn(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new([host.to_owned()]).expect("parameters");
        change(&mut parameters);
        let certificate = parameters.signed_by(&key, by).expect("a certificate");
        self.write(&format!("{name}.pem"), certificate.pem());
        self.write(&format!("{name}.key"), key.serialize_pem());
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Redis with a port for TLS beside the other one.
struct TlsRedis {
    server: RedisServer,
    port: Port,
}

/// Returns the options for a port with TLS. `name`: that of the server's files. `clients`: whether
/// clients must show a certificate.
fn tls_options(files: &Files, name: &str, clients: &str, port: &Port) -> Vec<String> {
    let path = |end: &str| files.path(&format!("{name}.{end}"));
    let options = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("pem")),
        ("--tls-key-file", path("key")),
        ("--tls-ca-cert-file", files.path("ca.pem")),
        ("--tls-auth-clients", clients.to_owned()),
        // Then a cluster announces this port.
        ("--tls-cluster", "yes".to_owned()),
    ];
    let options = options.map(|(name, value)| [name.to_owned(), value]);
    options.concat()
}

impl TlsRedis {
    fn start(files: &Files, name: &str, clients: &str) -> Self {
        Self::of(files, name, clients, false)
    }

    /// `is_cluster`: makes it the one node of a cluster.
    fn of(files: &Files, name: &str, clients: &str, is_cluster: bool) -> Self {
        let port = Port::claim();
        let mut options = tls_options(files, name, clients, &port);
        options.extend(
            ["--cluster-enabled", if is_cluster { "yes" } else { "no" }].map(str::to_owned),
        );
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let server = RedisServer::with(&options);
        if is_cluster {
            let slots = (0..16_384).map(|slot: u16| slot.to_string());
            let words = ["CLUSTER", "ADDSLOTS"].map(str::to_owned);
            server.command(&words.into_iter().chain(slots).collect::<Vec<_>>());
        }
        Self { server, port }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}/", self.port)
    }
}

fn limiter(store: RedisStore) -> Limiter {
    let policy = Policy::new("api", FixedWindow::per_day(100));
    Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny))
}

/// Waits for an error with one of these parts, which `|` separates. A busy machine may take too long
/// for the first attempt to connect.
async fn fails_with(builder: RedisStoreBuilder, url: &str, parts: &str) {
    let limiter = limiter(builder.connect(url).expect("a store"));
    eventually_async(parts, async || {
        let error = limiter.check("ann").await.expect_err("no decision");
        let error = error.to_string();
        parts.split('|').any(|part| error.contains(part))
    })
    .await;
}

async fn decides(limiter: &Limiter) {
    eventually_async("a decision", async || {
        let checked = limiter.check("ann").await;
        checked.is_ok_and(|decision| decision.source() == Source::Store)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_has_a_sentence() {
    let files = Files::new("mistakes");
    let [ours, other, namesake] = ["ours", "other", "ours"].map(authority);
    for (name, authority) in [("ca", &ours), ("other", &other), ("namesake", &namesake)] {
        files.write(&format!("{name}.pem"), authority.pem());
    }
    let local = "127.0.0.1";
    files.certify("server", &ours, local, |_| ());
    files.certify("elsewhere", &ours, "redis.example", |_| ());
    files.certify("expired", &ours, local, |parameters| {
        parameters.not_after = date_time_ymd(2020, 1, 1);
    });
    files.certify("early", &ours, local, |parameters| {
        parameters.not_before = date_time_ymd(2120, 1, 1);
    });
    files.certify("self", &ours, local, |parameters| {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    files.certify("stranger", &other, local, |_| ());
    let with = |authorities: &str| hasty().tls_authorities(files.path(authorities));
    for (server, authorities, expected) in [
        ("server", "other.pem", "no trusted authority has signed"),
        (
            "server",
            "namesake.pem",
            "not signed by the trusted authority of that name",
        ),
        (
            "elsewhere",
            "ca.pem",
            "another name; connect by a name in it, or set `tls_server_name`",
        ),
        (
            "elsewhere",
            "ca.pem",
            "(the certificate names redis.example)",
        ),
        ("expired", "ca.pem", "certificate has expired; renew it"),
        ("early", "ca.pem", "not valid yet"),
        ("self", "ca.pem", "the certificate of an authority (CA:TRUE"),
    ] {
        let redis = TlsRedis::start(&files, server, "no");
        fails_with(with(authorities), &redis.url("rediss"), expected).await;
    }

    let mutual = TlsRedis::start(&files, "server", "yes");
    let url = mutual.url("rediss");
    fails_with(with("ca.pem"), &url, "set `tls_client_certificate`").await;
    let stranger = with("ca.pem")
        .tls_client_certificate(files.path("stranger.pem"))
        .tls_client_key(files.path("stranger.key"));
    fails_with(stranger, &url, "does not trust the authority").await;

    let without = TlsRedis::start(&files, "server", "no");
    fails_with(hasty(), &without.url("redis"), "write rediss://").await;
    // Redis takes the handshake for a command, and replies or waits, by the bytes in it.
    let url = without.server.url().replace("redis:", "rediss:");
    for _ in 0..3 {
        fails_with(with("ca.pem"), &url, "write redis://").await;
    }
}

/// The servers' certificate names neither their address nor that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_and_a_client_certificate_reach_every_kind_of_server() {
    let files = Files::new("kinds");
    let ours = authority("ours");
    files.write("ca.pem", ours.pem());
    files.certify("server", &ours, "redis.example", |_| ());
    files.certify("client", &ours, "app", |_| ());
    let [one, node] =
        [false, true].map(|is_cluster| TlsRedis::of(&files, "server", "yes", is_cluster));
    let port = Port::claim();
    let options = [
        &tls_options(&files, "server", "yes", &port)[..],
        &["--tls-replication", "yes"].map(str::to_owned),
    ];
    let options = options.concat();
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let _sentinel = Sentinel::with(one.port.number(), 1, &options);

    let builder = hasty()
        .tls_authorities(files.path("ca.pem"))
        .tls_server_name("redis.example")
        .tls_client_certificate(files.path("client.pem"))
        .tls_client_key(files.path("client.key"));
    let name = Sentinel::NAME;
    for url in [
        one.url("rediss"),
        node.url("rediss-cluster"),
        format!("rediss-sentinel://127.0.0.1:{port}/?sentinelServiceName={name}"),
    ] {
        let limiter = limiter(builder.clone().connect(&url).expect("a store"));
        decides(&limiter).await;

        let wrong = builder.clone().tls_server_name("other.example");
        // fred keeps no reason why a sentinel cannot be asked.
        fails_with(wrong, &url, "for another name|compare their certificates").await;
    }
}

/// Certificates are renewed, and the process is not restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_files_are_for_the_next_connection() {
    let files = Files::new("renewed");
    let [ours, other] = ["ours", "other"].map(authority);
    files.write("ca.pem", ours.pem());
    files.certify("server", &ours, "127.0.0.1", |_| ());
    files.certify("client", &ours, "app", |_| ());
    let bundle = |name: &str| {
        let parts =
            ["pem", "key"].map(|end| fs::read_to_string(files.path(&format!("{name}.{end}"))));
        files.write("both.pem", parts.map(|part| part.expect("a file")).concat());
    };
    bundle("client");
    let redis = TlsRedis::start(&files, "server", "yes");
    files.write("trusted.pem", ours.pem());
    let store = hasty()
        .tls_authorities(files.path("trusted.pem"))
        .tls_client_certificate(files.path("both.pem"))
        .connect(&redis.url("rediss"));
    let limiter = limiter(store.expect("a store"));
    decides(&limiter).await;
    let fails = async |because: &'static str| {
        redis.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually_async(because, async || {
            let checked = limiter.check("ann").await;
            checked.is_err_and(|error| error.to_string().contains(because))
        })
        .await;
    };

    files.certify("stranger", &other, "app", |_| ());
    bundle("stranger");
    fails("does not trust the authority").await;
    bundle("client");
    decides(&limiter).await;

    files.write("trusted.pem", "in the middle of a change");
    fails("trusted.pem (it has no `BEGIN CERTIFICATE`)").await;
    files.write("trusted.pem", other.pem());
    fails("no trusted authority has signed").await;
    files.write("trusted.pem", [other.pem(), ours.pem()].concat());
    decides(&limiter).await;
}

#[test]
fn mistakes_in_settings_are_errors_of_the_build() {
    let files = Files::new("settings");
    let [ours, other] = ["ours", "other"].map(authority);
    files.write("ca.pem", ours.pem());
    files.certify("client", &ours, "app", |_| ());
    files.certify("other", &other, "app", |_| ());
    files.write("text.pem", "no certificate");
    let path = |name: &str| files.path(name);
    let tls = || hasty().tls_authorities(path("ca.pem"));
    let certified = || tls().tls_client_certificate(path("client.pem"));
    let cases = [
        (
            hasty().tls_authorities(path("none.pem")),
            "tls_authorities",
            "none.pem (No such file",
        ),
        (
            hasty().tls_authorities(path("text.pem")),
            "tls_authorities",
            "no `BEGIN CERTIFICATE`",
        ),
        (
            hasty().tls_authorities(path("")),
            "tls_authorities",
            "not a regular file",
        ),
        (
            tls().tls_server_name("a b"),
            "tls_server_name",
            "is not a name",
        ),
        (
            tls().tls_client_key(path("client.key")),
            "tls_client_key",
            "set `tls_client_certificate`",
        ),
        (
            certified(),
            "tls_client_certificate",
            "no `BEGIN PRIVATE KEY`",
        ),
        (
            certified().tls_client_key(path("none.key")),
            "tls_client_key",
            "none.key (No such file",
        ),
        (
            certified().tls_client_key(path("other.key")),
            "tls_client_key",
            "the two files of one certificate",
        ),
    ];
    for (builder, method, expected) in cases {
        let error = builder.validate("rediss://localhost/").expect_err(expected);
        assert_eq!((error.code(), error.subject()), ("redis-tls", Some(method)));
        let shown = error.to_string();
        assert!(
            shown.starts_with(&format!("`{method}`: ")) && shown.contains(expected),
            "{shown}"
        );
    }
    let right = certified().tls_client_key(path("client.key"));
    right.validate("rediss://localhost/").expect("no mistake");
    let error = right.validate("redis://localhost/").expect_err("no TLS");
    assert!(error.to_string().contains("write rediss://"), "{error}");
}
