//! [`RequestHead`]: what extractors and other readers see of a request.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{Extensions, HeaderMap, HeaderName, Method, Request, Uri, Version, request::Parts};

use crate::middleware::erased::Erased;

/// The head of a request, borrowed: everything but the body.
///
/// Its `Debug` shows the method and the names of the headers. Values, paths and
/// queries hold secrets.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    /// Set if a header has an address that cannot be read. `None`: the request is not counted.
    unread: Option<&'a AtomicBool>,
}

/// A closure that reads a request.
pub(crate) type HeadReader<T> = Erased<dyn Fn(&RequestHead<'_>) -> T + Send + Sync>;

impl<'a> RequestHead<'a> {
    /// Returns the method.
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the URI that this layer receives.
    ///
    /// Inside axum's `Router::nest("/api", ..)` it lacks `/api`. The URI that the client
    /// sent is in the extensions then (`axum::extract::OriginalUri`), and
    /// [`matched_route`](super::matched_route) reads the whole route.
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the version of HTTP in which the request arrived.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the headers.
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the values of a header field, one for each line, without blanks around them. HTTP/1
    /// servers remove these blanks; HTTP/2 ones pass them on.
    pub(super) fn lines(&self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = self.headers.get_all(name).into_iter();
        lines.map(|line| line.as_bytes().trim_ascii())
    }

    /// Returns the extensions, in which the server and earlier layers put values.
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

/// Marks a request that was made from what an operator typed, in its extensions.
#[derive(Clone, Copy)]
struct MadeUp;

/// Returns a request to be filled with what an operator types. A part that it lacks is not a
/// mistake of the application, and is not logged.
pub(crate) fn made_up() -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(MadeUp);
    request
}

impl<'a> RequestHead<'a> {
    /// Returns whether a client has sent it.
    pub(crate) fn is_sent(&self) -> bool {
        self.extensions.get::<MadeUp>().is_none()
    }

    /// Returns the same head, whose readers set `unread` if a header has an address that they cannot
    /// read.
    pub(crate) fn reporting(self, unread: &'a AtomicBool) -> Self {
        let unread = Some(unread);
        Self { unread, ..self }
    }

    /// Reports a header with an address that cannot be read.
    pub(super) fn report_unread(&self) {
        if let Some(unread) = self.unread {
            unread.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", self.method)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<'a, B> From<&'a Request<B>> for RequestHead<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            unread: None,
        }
    }
}

/// For handlers, which have the parts of a request.
impl<'a> From<&'a Parts> for RequestHead<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
            unread: None,
        }
    }
}
