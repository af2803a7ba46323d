//! `${NAME}` in texts: variables of the environment.

/// Puts the values of variables into a text. `find`: what a variable of the environment is.
///
/// # Errors
///
/// Returns what is wrong. It names variables and shows no values.
pub(super) fn expand(
    text: &str,
    find: impl Fn(&str) -> Option<String>,
) -> Result<String, (&'static str, String)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut parts = text.split("${");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let unclosed = || "`${` without a `}`; write `${NAME}`".to_owned();
        let closed = part.split_once('}');
        let (name, after) = closed.ok_or_else(|| ("bad-variable", unclosed()))?;
        if name.is_empty() || !name.chars().all(is_part) {
            let message =
                "`${..}` does not name a variable; write `${NAME}`, with letters, digits and `_`";
            return Err(("bad-variable", message.to_owned()));
        }
        let unset = || format!("the variable {name} of the environment is not set; set it");
        expanded += &find(name).ok_or_else(|| ("unset-variable", unset()))?;
        expanded += after;
    }
    Ok(expanded)
}
