//! A limiter in the service that an authentication gate asks: a real nginx with `auth_request`,
//! which forwards a request if the service answers 200.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Router, routing::any};
use http::{HeaderMap, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};
use tower_throttle::{FixedWindow, GrpcDenials, Policy, RateLimitLayer};

use super::calls::listen;
use crate::support::port::Port;

const PAGE: &str = "the protected page";

/// An nginx that serves [`PAGE`] to requests that the service admits. It stops when dropped.
struct Nginx {
    child: Child,
    port: Port,
    folder: PathBuf,
}

impl Nginx {
    async fn start(service: u16) -> Self {
        let port = Port::claim();
        let name = format!("tower-throttle-nginx-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("private")).unwrap();
        fs::write(folder.join("private/page"), PAGE).unwrap();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary.map(|what| format!("{what}_temp_path {what};"));
        let temporary = temporary.concat();
        let configuration = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr;
            events {{}}
            http {{
                access_log off; {temporary}
                server {{
                    listen 127.0.0.1:{port};
                    root .;
                    location /private/ {{
                        auth_request /auth;
                    }}
                    location /with-retry-after/ {{
                        alias private/;
                        auth_request /auth;
                        auth_request_set $gate_status $upstream_status;
                        auth_request_set $gate_retry_after $upstream_http_retry_after;
                        error_page 500 = @gate_failed;
                    }}
                    location @gate_failed {{
                        if ($gate_status = 429) {{
                            add_header Retry-After $gate_retry_after always;
                            return 429;
                        }}
                        return 500;
                    }}
                    location = /auth {{
                        internal;
                        proxy_pass http://127.0.0.1:{service};
                        proxy_http_version 1.1;
                        proxy_pass_request_body off;
                        proxy_set_header Content-Length \"\";
                    }}
                }}
            }}"
        );
        fs::write(folder.join("nginx.conf"), configuration).unwrap();
        // Debian installs nginx outside of the PATH of an ordinary user.
        let programs = ["nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"];
        let child = programs.iter().find_map(|program| {
            let mut command = Command::new(program);
            command.arg("-p").arg(&folder).args(["-c", "nginx.conf"]);
            let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
            silent.spawn().ok()
        });
        let child = child.expect(
            "this test needs `nginx` on the PATH: install the package `nginx`, or \
             run `scripts/test`, which does",
        );
        let mut nginx = Self {
            child,
            port,
            folder,
        };
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(nginx.address()).await.is_err() {
            let ended = nginx.child.try_wait().unwrap();
            assert_eq!(ended, None, "nginx ended");
            assert!(Instant::now() < until, "nginx does not listen");
            sleep(Duration::from_millis(5)).await;
        }
        nginx
    }

    fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port.number())
    }

    /// Sends a request over HTTP/1.1, and returns the whole response as text.
    async fn ask(&self, method: &str, path: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nContent-Length: 0\r\n\
             {fields}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The service that the gate asks. It admits three requests a day, for all callers together.
async fn service(setting: GrpcDenials) -> u16 {
    let check = |headers: HeaderMap| async move {
        match headers.get("authorization") {
            Some(token) if token == "Bearer ours" => StatusCode::OK,
            _ => StatusCode::UNAUTHORIZED,
        }
    };
    let limits = RateLimitLayer::builder()
        .policy(Policy::new("logins", FixedWindow::per_day(3)).shared())
        .grpc_denials(setting)
        .build()
        .unwrap();
    let app = Router::new().fallback(any(check)).layer(limits);
    listen(app).await.port()
}

#[tokio::test]
async fn no_content_type_opens_an_nginx_auth_request_gate_that_denies() {
    for setting in [GrpcDenials::default(), GrpcDenials::Never] {
        let nginx = Nginx::start(service(setting).await).await;
        let page = "/private/page";
        let token = "Authorization: Bearer ours\r\n";
        let known = nginx.ask("GET", page, token).await;
        let is_page = known.starts_with("HTTP/1.1 200 ") && known.ends_with(PAGE);
        assert!(is_page, "{known}");
        for kind in ["text/plain", "application/grpc"] {
            let fields = format!("Content-Type: {kind}\r\n");
            let unknown = nginx.ask("GET", page, &fields).await;
            assert!(unknown.starts_with("HTTP/1.1 401 "), "{unknown}");
        }
        // The limit is used up.
        for kind in "text/plain application/grpc+proto application/grpc-web-text".split(' ') {
            for method in ["GET", "HEAD", "POST"] {
                let fields = format!("Content-Type: {kind}\r\nTE: trailers\r\n");
                let denied = nginx.ask(method, page, &fields).await;
                let shown = format!("{setting:?} {method} {kind}: {denied}");
                assert!(denied.starts_with("HTTP/1.1 500 "), "{shown}");
                assert!(!denied.contains(PAGE), "{shown}");
            }
        }
    }
}

/// The configuration in docs/authentication-gates.md.
#[tokio::test]
async fn nginx_can_pass_on_the_denial_of_a_gate() {
    let nginx = Nginx::start(service(GrpcDenials::Never).await).await;
    let page = "/with-retry-after/page";
    let known = "Authorization: Bearer ours\r\n";
    for _ in 0..3 {
        assert!(nginx.ask("GET", page, known).await.ends_with(PAGE));
    }
    let denied = nginx.ask("GET", page, known).await;
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert!(denied.contains("\r\nRetry-After: "), "{denied}");
}
