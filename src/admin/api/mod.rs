//! The API: JSON below `/api/v1/`.

use axum::Router;

use super::shared::Handle;

/// Returns all routes below `/api/v1/`.
pub(super) fn routes() -> Router<Handle> {
    Router::new()
}
