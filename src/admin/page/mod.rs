//! The page and its assets.

use axum::Router;

use super::shared::Handle;

/// Returns `GET /`, `GET /admin.css` and `GET /admin.js`.
pub(super) fn routes() -> Router<Handle> {
    Router::new()
}
