//! The command line of the examples that serve: `--listen 127.0.0.1:3001`, for example.

use std::{env::args, io};

use tokio::net::TcpListener;

/// Returns the word after an option.
pub(crate) fn option(name: &str) -> Option<String> {
    args().skip_while(|word| word != name).nth(1)
}

/// Listens on the address after `--listen`, or on port 3000. Port 0 is any free one.
pub(crate) async fn listener() -> io::Result<TcpListener> {
    let address = option("--listen").unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(listener)
}
