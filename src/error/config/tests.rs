//! The codes that the sources write, and the page of errors.

#![allow(clippy::expect_used)]

use crate::util::tests::repository;

/// Returns the codes in a text, in its order. `new`: what makes an error there.
fn codes(text: &str, new: &str) -> Vec<String> {
    let calls = text.split(new).skip(1);
    let code = |call: &str| {
        let code = call.trim_start().strip_prefix('"')?.split('"').next()?;
        Some(code.to_owned())
    };
    calls
        .map(|call| code(call).expect("a code, written out"))
        .collect()
}

/// So a code has one meaning: what several checks find is made by one function.
#[test]
fn each_code_is_written_once_and_has_one_row_on_the_page_of_errors() {
    let Some(page) = repository::read("docs/errors.md") else {
        return;
    };
    let mut written = codes(include_str!("../config.rs"), "Self::new(");
    for source in repository::sources().expect("sources") {
        written.extend(codes(&source, "ConfigError::new("));
    }
    written.sort();
    let table = page
        .split("## ")
        .find(|part| part.starts_with("Configuration"));
    let rows = table.expect("its table").lines();
    let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    let mut listed: Vec<_> = listed.collect();
    listed.sort_unstable();
    assert!(listed.len() > 60, "{listed:?}");
    assert_eq!(written, listed);
}
