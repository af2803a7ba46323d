//! `${NAME}` in texts: variables of the environment.

use std::borrow::Cow;

use super::problem::Code;

/// Puts the values of variables into a text. `find`: what a variable of the environment is.
///
/// # Errors
///
/// Returns what is wrong. It names variables and shows no values.
pub(super) fn expand<'a>(
    text: &'a str,
    find: impl Fn(&str) -> Option<String>,
) -> Result<Cow<'a, str>, (Code, String)> {
    let Some((start, mut rest)) = text.split_once("${") else {
        return Ok(text.into());
    };
    let mut expanded = start.to_owned();
    loop {
        let Some((name, after)) = rest.split_once('}') else {
            let message = "`${` without a `}`; write `${NAME}`".to_owned();
            return Err((Code::BadVariable, message));
        };
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_part) {
            let message =
                "`${..}` does not name a variable; write `${NAME}`, with letters, digits and `_`";
            return Err((Code::BadVariable, message.to_owned()));
        }
        let Some(value) = find(name) else {
            let message = format!("the variable {name} of the environment is not set; set it");
            return Err((Code::UnsetVariable, message));
        };
        expanded.push_str(&value);
        let Some((between, next)) = after.split_once("${") else {
            expanded.push_str(after);
            return Ok(expanded.into());
        };
        expanded.push_str(between);
        rest = next;
    }
}
