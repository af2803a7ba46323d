//! Requests of programs, without a browser.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::support::DEADLINE;

/// Sends a request over a connection of its own: `GET /path`. Returns the status.
pub(crate) fn ask(address: SocketAddr, what: &str, fields: &[(&str, &str)], body: &str) -> u16 {
    let fields = fields.iter();
    let fields: String = fields
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
    let limited = stream.set_read_timeout(Some(DEADLINE));
    limited.expect("a time limit");
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{fields}\
         content-length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.expect("a status")
}
