//! What browsers load beside the page.

use std::sync::LazyLock;

/// The markup of the page, with placeholders.
pub(super) static PAGE: LazyLock<String> =
    LazyLock::new(|| lean(include_str!("assets/admin.html")));
/// The markup of the page that asks for the token, with placeholders.
pub(super) static LOGIN: LazyLock<String> =
    LazyLock::new(|| lean(include_str!("assets/login.html")));

/// A file of the page: its path, its content type and its text.
pub(super) type Asset = (&'static str, &'static str, &'static str);

/// Returns all files.
pub(super) fn all() -> [Asset; 3] {
    [
        ("/admin.css", "text/css; charset=utf-8", STYLE.as_str()),
        (
            "/admin.js",
            "text/javascript; charset=utf-8",
            SCRIPT.as_str(),
        ),
        (
            "/admin.svg",
            "image/svg+xml",
            include_str!("assets/admin.svg"),
        ),
    ]
}

/// Its texts and selectors have none of these.
const SPACES: [(&str, &str); 7] = [
    ("\n", ""),
    ("; }", "}"),
    (" { ", "{"),
    (" {", "{"),
    ("; ", ";"),
    (": ", ":"),
    (", ", ","),
];

static STYLE: LazyLock<String> = LazyLock::new(|| {
    let style = lean(concat!(
        include_str!("assets/colors.css"),
        include_str!("assets/admin.css")
    ));
    let replace = |style: String, (long, short)| style.replace(long, short);
    SPACES.into_iter().fold(style, replace)
});

/// One module of all parts: browsers ask for one file, and the parts need no imports.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    lean(concat!(
        include_str!("assets/script/elements.js"),
        include_str!("assets/script/chart.js"),
        include_str!("assets/script/tables.js"),
        include_str!("assets/script/look_up.js"),
        include_str!("assets/script/changes.js"),
        include_str!("assets/script/live.js"),
    ))
});

/// Leaves out indentation, comments that have lines of their own, and empty lines. No text of the
/// files goes over several lines.
fn lean(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let lines = lines.filter(|line| !(line.starts_with("/*") && line.ends_with("*/")));
    lines.flat_map(|line| [line, "\n"]).collect()
}
