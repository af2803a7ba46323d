//! What the log says of a caller.

use std::fmt::Write;

use crate::api::look_up::{CallerPolicy, LookUp};

/// Describes a caller's state for the log.
pub(super) fn summary(found: &LookUp) -> String {
    let mut text = String::new();
    for policy in &found.policies {
        if !text.is_empty() {
            text.push_str("; ");
        }
        // A text takes all that is written to it.
        let _ = describe(policy, &mut text);
    }
    text
}

fn describe(found: &CallerPolicy, text: &mut String) -> std::fmt::Result {
    write!(text, "{}/{}: ", found.limiter, found.policy)?;
    if let Some(quota) = &found.quota {
        write!(text, "{quota}, ")?;
    }
    match (found.remaining, found.limit, &found.error) {
        (Some(remaining), Some(limit), _) => write!(text, "{remaining} of {limit} left")?,
        (.., Some(error)) => write!(text, "unknown, because {error}")?,
        _ => text.push_str("unknown"),
    }
    if let (Some(by), Some(until_ms)) = (found.banned_by, found.banned_until_ms) {
        write!(text, ", banned by {by} until {until_ms}")?;
    }
    Ok(())
}
