//! A server of one page, for what needs no application.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    thread,
};

/// Answers each request with this page, until the process ends.
pub(crate) fn serve(body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A browser opens connections in advance, without a request.
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
            });
        }
    });
    address
}
