//! A server that replies as a test says.

use std::{
    io::{BufRead, BufReader, Error, ErrorKind, Result, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

/// Listens, and passes every connection to `talk`, with its number from 0. Returns the port.
pub fn listen(talk: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> u16 {
    listen_at(0, talk)
}

/// The same on this port.
pub fn listen_at(port: u16, talk: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let talk = Arc::new(talk);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            let talk = Arc::clone(&talk);
            thread::spawn(move || talk(number, stream));
        }
    });
    port
}

/// Accepts everything, and never answers. Returns the port.
pub fn silent() -> u16 {
    listen(|_, mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())))
}

/// Answers each command of each connection as `say` does. Returns the port.
pub fn answer<A: Into<Vec<u8>>>(
    say: impl Fn(usize, &[Vec<u8>]) -> A + Send + Sync + 'static,
) -> u16 {
    talk(move |number, words| Some(say(number, words).into()))
}

/// The same, and hangs up where there is no answer.
pub fn talk(say: impl Fn(usize, &[Vec<u8>]) -> Option<Vec<u8>> + Send + Sync + 'static) -> u16 {
    listen(move |number, stream| converse(stream, |words| say(number, words)))
}

/// Answers each command of a connection until there is no answer.
pub fn converse(mut stream: TcpStream, say: impl Fn(&[Vec<u8>]) -> Option<Vec<u8>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Ok(words) = read_command(&mut reader) {
        if say(&words).is_none_or(|answer| stream.write_all(&answer).is_err()) {
            return;
        }
    }
}

/// Reads the words of the next command.
pub fn read_command(reader: &mut impl BufRead) -> Result<Vec<Vec<u8>>> {
    let words = read_length(reader)?;
    let word = |_| {
        let mut word = vec![0; read_length(reader)? + 2];
        reader.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        Ok(word)
    };
    (0..words).map(word).collect()
}

fn read_length(reader: &mut impl BufRead) -> Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let digits = line.trim_end().get(1..).unwrap_or_default();
    let no_number = |_| Error::from(ErrorKind::UnexpectedEof);
    digits.parse().map_err(no_number)
}

/// Returns whether a command runs a script that decides checks.
pub fn is_script(words: &[Vec<u8>]) -> bool {
    (is(words, b"EVALSHA") || is(words, b"EVAL")) && !is_without_keys(words)
}

/// Returns whether a command is a script without checks, which loads its text.
pub fn is_load(words: &[Vec<u8>]) -> bool {
    is(words, b"EVAL") && is_without_keys(words)
}

fn is(words: &[Vec<u8>], name: &[u8]) -> bool {
    words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case(name))
}

/// Such a call by name is that of a new connection, which finds out whether the server runs scripts.
fn is_without_keys(words: &[Vec<u8>]) -> bool {
    words.get(2).is_some_and(|keys| keys == b"0")
}

/// Returns the number that the reply to a script must start with.
pub fn nonce(words: &[Vec<u8>]) -> f64 {
    let numbers = words.last().and_then(|numbers| numbers.first_chunk());
    f64::from_le_bytes(*numbers.expect("eight bytes"))
}

/// Returns a script's reply of these numbers.
pub fn reply(numbers: &[f64]) -> Vec<u8> {
    let row: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    [format!("${}\r\n", row.len()).as_bytes(), &row, b"\r\n"].concat()
}
