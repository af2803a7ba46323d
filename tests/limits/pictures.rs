//! The pictures of `docs/algorithms.md`.

#[path = "../../examples/pictures/drawing.rs"]
mod drawing;
#[path = "../../examples/pictures/replay.rs"]
mod replay;

use std::{env, fs, path::Path};

#[test]
fn the_pictures_in_the_repository_show_what_the_limiter_decides() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    for (file, picture) in drawing::all() {
        let path = folder.join(&file);
        if env::var_os("TT_WRITE").is_some() {
            fs::write(&path, &picture).expect("the picture");
        }
        let stored = fs::read_to_string(&path).expect("the picture");
        let is_shown = stored == picture;
        assert!(
            is_shown,
            "with TT_WRITE=1, docs/images/{file} shows what the code decides"
        );
    }
}

/// Returns the words between these two.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect("the start");
    rest.split_once(end).expect("the end").0
}

#[test]
fn the_page_of_the_algorithms_has_each_picture_and_its_numbers() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md");
    let page = fs::read_to_string(page).expect("the page");
    for (file, picture) in drawing::all() {
        assert!(page.contains(&format!("](images/{file})")), "{file}");
        let name = between(&picture, "<title id=\"title\">", ":");
        let results = between(&picture, "are admitted. ", ". A line");
        let admitted = results.split(", ").map(|phase| between(phase, ": ", " of"));
        let cells = format!("| {} |", admitted.collect::<Vec<_>>().join(" | "));
        let mut rows = page.lines();
        let row = rows.find(|row| row.starts_with(&format!("| `{name}`")));
        let row = row.expect("a row of the table");
        assert!(row.contains(&cells), "{row} has not {cells}");
    }
}
