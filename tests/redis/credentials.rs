//! Users and passwords that change while a store lives.

use std::io;

use crate::{prelude::*, support::sentinel::Sentinel};

/// What the store returns for its next connection.
#[derive(Clone, Default)]
struct Current(Arc<Mutex<(String, String)>>);

impl Current {
    fn set(&self, user: &str, password: &str) {
        *self.0.lock().expect("no panic") = (user.to_owned(), password.to_owned());
    }

    fn store_at(&self, url: &str) -> RedisStore {
        let current = self.clone();
        let read = move || Ok(current.0.lock().expect("no panic").clone());
        let store = patient().credentials(read).connect(url);
        store.expect("a store")
    }
}

/// A password is rotated, then the user is another one, as with a secret store that makes users.
async fn follows(server: &RedisServer, url: &str) {
    let user = |name: &str, password: &str| {
        let rights = format!("ACL SETUSER {name} reset on >{password} ~tt?{{* +@all");
        server.command(&rights.split(' ').collect::<Vec<_>>());
    };
    user("app", "one");
    let current = Current::default();
    current.set("", "one");
    let limiter = denying(current.store_at(url), TokenBucket::per_hour(100));
    ready(&limiter).await;

    user("app", "two");
    // As a server does whose tokens expire.
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    eventually_async("a refusal of the old password", async || {
        let checked = limiter.check("ann").await;
        checked.is_err_and(|error| error.to_string().contains("WRONGPASS"))
    })
    .await;
    current.set("app", "two");
    ready(&limiter).await;

    user("app2", "three");
    current.set("app2", "three");
    server.command(&["ACL", "DELUSER", "app"]);
    ready(&limiter).await;
    let list = server.command(&["CLIENT", "LIST"]);
    assert!(list.contains("user=app2 "), "{list}");
}

#[tokio::test]
async fn a_server_is_given_the_credentials_of_the_moment() {
    let server = RedisServer::start();
    let url = format!("redis://app@127.0.0.1:{}/", server.port());
    follows(&server, &url).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_given_the_credentials_of_the_moment() {
    let cluster = RedisCluster::start(1, 0);
    let node = &cluster.nodes[0];
    let url = format!("redis-cluster://app@127.0.0.1:{}/", node.port());
    follows(node, &url).await;
}

#[tokio::test]
async fn a_primary_behind_sentinel_is_given_the_credentials_of_the_moment() {
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), 1);
    let (port, name) = (&sentinel.port, Sentinel::NAME);
    let url = format!("redis-sentinel://app@127.0.0.1:{port}/?sentinelServiceName={name}");
    follows(&server, &url).await;
}

/// Nothing is sent, and the reason is in the error. Later attempts ask again.
#[tokio::test]
async fn credentials_that_cannot_be_read_are_an_error_until_they_can() {
    let server = RedisServer::start();
    let is_there = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_there);
    let read = move || match seen.load(Ordering::SeqCst) {
        true => Ok((String::new(), String::new())),
        false => Err(io::Error::other("the secret is not mounted")),
    };
    let store = patient().credentials(read).connect(&server.url());
    let limiter = denying(store.expect("a store"), TokenBucket::per_hour(100));
    let error = limiter.check("ann").await.expect_err("no credentials");
    assert!(error.is_unavailable() && !error.may_have_run(), "{error:?}");
    let shown = error.to_string();
    assert!(
        shown.ends_with("no credentials: the secret is not mounted"),
        "{shown}"
    );
    server.command(&["ACL", "SETUSER", "default", "on", ">"]);
    is_there.store(true, Ordering::SeqCst);
    ready(&limiter).await;
}
