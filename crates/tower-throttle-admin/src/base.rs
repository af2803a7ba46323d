//! Where the page is, as its own links see it.
//!
//! All URLs are relative, so that they are right behind a proxy that shows the page at another path
//! than this process sees.

use axum::extract::OriginalUri;
use http::request::Parts;

/// The start of all relative URLs of the page: `./`, or `./admin/` if the page is at `/admin`
/// without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base(pub(crate) String);

impl Base {
    /// Returns that of a request for the page.
    pub(crate) fn of(parts: &Parts) -> Self {
        // The path before routers that this one is nested in took their part of it.
        let original = parts.extensions.get::<OriginalUri>();
        let path = original.map_or(parts.uri.path(), |original| original.path());
        let last = path.rsplit('/').next().unwrap_or_default();
        Self(match parts.uri.path() == "/" && !last.is_empty() {
            true => format!("./{last}/"),
            false => "./".to_owned(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::extract::OriginalUri;
    use http::{Request, request::Parts};

    use super::Base;

    fn parts(original: &str, path: &str) -> Parts {
        let mut parts = Request::get(path).body(()).unwrap().into_parts().0;
        parts
            .extensions
            .insert(OriginalUri(original.parse().unwrap()));
        parts
    }

    #[test]
    fn urls_are_relative_to_where_the_browser_sees_the_page() {
        for (original, path, base) in [
            ("/", "/", "./"),
            ("/admin/", "/", "./"),
            ("/admin", "/", "./admin/"),
            ("/a/b/admin?c=d/e", "/", "./admin/"),
            ("/admin/look-up", "/look-up", "./"),
            ("/x%22y&'\"", "/", "./x%22y&'\"/"),
            ("/javascript:a", "/", "./javascript:a/"),
        ] {
            assert_eq!(Base::of(&parts(original, path)).0, base, "{original}");
        }
    }
}
