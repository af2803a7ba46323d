//! Requests of programs, without a browser.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::support::DEADLINE;

/// Sends a request over a connection of its own. Returns the status and the body.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut answer = String::new();
    let mut stream = send(address, method, path, fields, body);
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an end of the head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a time limit");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}
