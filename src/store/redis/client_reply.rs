//! Interprets replies and errors of the client fred.

use std::{error::Error, fmt};

use fred::{
    error::{Error as FredError, ErrorKind},
    interfaces::Resp3Frame,
    types::Value,
};

use super::{reply::Integers, tls};
use crate::{StoreError, error::StoreErrorKind};

/// Whether the server does not know the script, so that nothing ran.
pub(super) fn is_unknown_script(reply: &Result<Integers, FredError>) -> bool {
    let error = reply.as_ref().err();
    error.is_some_and(|error| error.details().starts_with("NOSCRIPT"))
}

/// Whether the server has no such command. All other errors have another word.
pub(super) fn is_unable(error: &FredError) -> bool {
    first_word(error.details()) == Some("ERR")
}

/// Whether the peer ended the connection.
pub(super) fn is_lost(error: &FredError) -> bool {
    let parts = [
        LOST,
        "channel closed",
        "Connection closed",
        "ConnectionReset",
        "ConnectionAborted",
        "BrokenPipe",
        "UnexpectedEof",
    ];
    *error.kind() == ErrorKind::Canceled || parts.iter().any(|part| error.details().contains(part))
}

/// Returns the error of a server that does not run scripts.
pub(super) fn without_scripts(error: &FredError) -> FredError {
    let why = format!(
        "{}; the server runs no scripts: it is a sentinel (write redis-sentinel://), or its \
         `rename-command` took EVALSHA away",
        readable(error)
    );
    FredError::new(error.kind().clone(), why)
}

/// Reads the frame itself: the client's own conversion would copy the words.
pub(super) fn integers_of_frame(reply: Resp3Frame) -> Result<Integers, FredError> {
    match reply {
        Resp3Frame::BlobString { data, .. } => integers(&data),
        Resp3Frame::SimpleError { data, .. } => Err(server_error(&data)),
        Resp3Frame::BlobError { data, .. } => Err(server_error(&String::from_utf8_lossy(&data))),
        _ => Err(no_integers()),
    }
}

pub(crate) fn integers_of_value(reply: &Value) -> Result<Integers, FredError> {
    match reply {
        Value::Bytes(row) => integers(row),
        // The client returns some byte strings as text.
        Value::String(row) => integers(row.as_bytes()),
        _ => Err(no_integers()),
    }
}

fn integers(row: &[u8]) -> Result<Integers, FredError> {
    let mut integers = Integers::with_capacity(row.len() / size_of::<f64>());
    let mut rest = row;
    while let Some((double, behind)) = rest.split_first_chunk() {
        let number = f64::from_le_bytes(*double);
        // A fraction, or a number too large for an integer, does not survive the conversion.
        let integer = number as i64;
        if integer as f64 != number {
            return Err(no_integers());
        }
        integers.push(integer);
        rest = behind;
    }
    match rest {
        [] => Ok(integers),
        _ => Err(no_integers()),
    }
}

fn no_integers() -> FredError {
    FredError::new(ErrorKind::Protocol, "not a row of integers")
}

/// Converts an error that the server replied.
fn server_error(error: &str) -> FredError {
    let kind = match first_word(error) {
        Some("NOAUTH" | "WRONGPASS") => ErrorKind::Auth,
        Some("MOVED" | "ASK" | "CLUSTERDOWN") => ErrorKind::Cluster,
        _ => ErrorKind::Unknown,
    };
    FredError::new(kind, error.to_owned())
}

/// Classifies an error of the client.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn store_error(error: FredError) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::Timeout => StoreErrorKind::Timeout,
        ErrorKind::Backpressure => StoreErrorKind::Overloaded,
        ErrorKind::Protocol | ErrorKind::Parse => StoreErrorKind::ForeignReply,
        ErrorKind::Auth => StoreErrorKind::Refused,
        _ => match first_word(error.details()) {
            // The cluster has lost some slots, and this node serves no keys.
            Some("CLUSTERDOWN") => StoreErrorKind::Unavailable,
            Some("MOVED" | "ASK" | "TRYAGAIN") => StoreErrorKind::Redirected,
            Some(_) => StoreErrorKind::Refused,
            None => StoreErrorKind::Unavailable,
        },
    };
    StoreError::with_source(kind, RedisError(readable(&error)))
}

/// Whether an error is a reply after which the server keeps the connection.
pub(super) fn is_reply(error: &FredError) -> bool {
    match error.kind() {
        ErrorKind::Protocol => true,
        ErrorKind::Auth | ErrorKind::Timeout => false,
        _ => first_word(error.details()).is_some_and(|word| word != "CLUSTERDOWN"),
    }
}

/// The text of a failure, from Redis, the network or the client.
#[derive(Clone, Debug)]
pub(super) struct RedisError(pub(super) String);

impl RedisError {
    /// Returns the cause of an error, if it is of Redis, the network or the client.
    pub(super) fn of(error: &StoreError) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// Returns the word in capitals with which a server's error starts.
    pub(super) fn word(&self) -> Option<&str> {
        first_word(&self.0)
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RedisError {}

/// Returns the text of an error for operators, without secrets.
pub(super) fn readable(error: &FredError) -> String {
    let details = error.details();
    // A server that does not know a command, such as a renamed AUTH, repeats its
    // arguments: the password.
    let unknown = details.split_once(", with args beginning with");
    let unknown = unknown.map(|(unknown, _)| unknown);
    // `Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }`
    let by_system = details.split_once("message: \"");
    let by_system = by_system.and_then(|(_, message)| message.split('"').next());
    // Newer versions name the user that lacks a right.
    let lacked = details.strip_prefix("NOPERM User ");
    if let Some((_, lacked)) = lacked.and_then(|rest| rest.split_once(' ')) {
        return format!("NOPERM this user {lacked}");
    }
    if let Some(sentence) = tls::explained(details) {
        return sentence;
    }
    match unknown.or(by_system) {
        Some(text) => text.to_owned(),
        // The client's task that had the call has ended.
        None if details == "channel closed" => LOST.to_owned(),
        None => details.to_owned(),
    }
}

const LOST: &str = "the connection was lost";

pub(super) fn lost() -> FredError {
    FredError::new(ErrorKind::IO, LOST)
}

/// A reply to any other command than a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    Array(Vec<Self>),
    Other,
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Integer(integer) => Self::Integer(integer),
            Value::String(text) => Self::Text(text.to_string()),
            Value::Bytes(bytes) => match String::from_utf8(bytes.into()) {
                Ok(text) => Self::Text(text),
                Err(other) => Self::Bytes(other.into_bytes()),
            },
            Value::Array(values) => Self::Array(values.into_iter().map(Self::from).collect()),
            _ => Self::Other,
        }
    }
}

/// Returns the word in capitals with which a server's error starts: `ERR`, `NOPERM`, `OOM`.
fn first_word(details: &str) -> Option<&str> {
    let word = details.split(' ').next()?;
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    is_word.then_some(word)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_readable_and_hold_no_argument() {
        let shown = |kind, details: &'static str| readable(&FredError::new(kind, details));
        let unknown = "ERR unknown command 'AUTH', with args beginning with: 'app' 'secret' ";
        assert_eq!(
            shown(ErrorKind::Unknown, unknown),
            "ERR unknown command 'AUTH'"
        );
        let refused = r#"Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }"#;
        assert_eq!(shown(ErrorKind::IO, refused), "Connection refused");
        assert_eq!(shown(ErrorKind::Unknown, "OOM no"), "OOM no");
    }
}
