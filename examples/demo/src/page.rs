//! The page and its files.

use axum::{
    Router,
    extract::{Request, State},
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    response::{Html, IntoResponse, Response},
    routing::get,
};

use crate::{app::App, look::look};

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($path:literal $kind:ident),* $(,)?) => {
        [
            ("/colors.css", CSS, include_str!("../../../crates/tower-throttle-admin/src/page/assets/colors.css")),
            $((concat!("/", $path), $kind, include_str!(concat!("page/", $path)))),*
        ]
    };
}

/// Path, type and text.
const FILES: [(&str, &str, &str); 16] = files![
    "page.css" CSS,
    "pictures.css" CSS,
    "page.js" JS,
    "cards.js" JS,
    "routes.js" JS,
    "responses.js" JS,
    "switches.js" JS,
    "dom.js" JS,
    "stage.js" JS,
    "drops.js" JS,
    "buckets.js" JS,
    "queue.js" JS,
    "windows.js" JS,
    "sliding.js" JS,
    "slots.js" JS,
];

/// Nothing but the demo's own files.
const ALLOWED: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                       img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn router() -> Router<App> {
    let page = Router::new().route("/", get(page));
    FILES.iter().fold(page, |router, &(path, kind, text)| {
        let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")];
        router.route(path, get(async move || (headers, text)))
    })
}

/// Returns the page with what the caller has left, so that the first paint shows it.
async fn page(State(app): State<App>, request: Request) -> Response {
    let start = look(&app, request).await.unwrap_or_default().to_string();
    // Names from a file must not end the script that they are in.
    let start = start.replace('<', "\\u003c");
    let page = include_str!("page/page.html").replace("/* start */", &start);
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, ALLOWED),
    ];
    (headers, Html(page)).into_response()
}
