//! Clients that keep connections to an HTTP server busy.

use std::{
    io::Write,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
    task::JoinSet,
};

use crate::{
    callers::{Callers, MANY, api_key},
    measured::Measured,
};

const CONNECTIONS: usize = 64;

/// The server's response body. A response that ends with it has arrived.
pub const BODY: &str = "hello";
const END: &[u8] = b"\r\n\r\nhello";

/// One thread sends requests of one caller after another on all connections.
pub fn round(server: SocketAddr, length: Duration) -> Measured {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(TcpStream::connect(server).await.expect("a connection"));
        }
        let started = Instant::now();
        let mut workers = JoinSet::new();
        for (worker, connection) in (0..).zip(connections) {
            workers.spawn(async move {
                let mut client = Client::new(connection);
                let callers = Callers::Each(MANY);
                let mut at = callers.first(worker, CONNECTIONS);
                let mut times = Vec::with_capacity(1 << 12);
                while started.elapsed() < length {
                    let asked = Instant::now();
                    client.ask(at).await;
                    times.push(asked.elapsed());
                    at = callers.next(at);
                }
                times
            });
        }
        let times = workers.join_all().await;
        let took = started.elapsed();
        Measured::new(took, times.concat())
    })
}

struct Client {
    connection: TcpStream,
    request: Vec<u8>,
    /// Where the caller's name is in it.
    caller_at: usize,
    response: Box<[u8; 4_096]>,
}

impl Client {
    fn new(connection: TcpStream) -> Self {
        connection.set_nodelay(true).expect("a connection");
        let before = "GET / HTTP/1.1\r\nhost: localhost\r\nx-api-key: ";
        Self {
            connection,
            request: format!("{before}{}\r\n\r\n", api_key(0)).into_bytes(),
            caller_at: before.len(),
            response: Box::new([0; 4_096]),
        }
    }

    async fn ask(&mut self, caller: usize) {
        let mut name = &mut self.request[self.caller_at..];
        write!(name, "key-{caller:012}").expect("room for a name");
        self.connection
            .write_all(&self.request)
            .await
            .expect("a connection");
        let mut length = 0;
        while !self.response[..length].ends_with(END) {
            let rest = &mut self.response[length..];
            let more = self.connection.read(rest).await.expect("a connection");
            assert!(more > 0, "a response that fits, and ends in `{BODY}`");
            length += more;
        }
        assert!(
            self.response.starts_with(b"HTTP/1.1 200 "),
            "it is admitted"
        );
    }
}
