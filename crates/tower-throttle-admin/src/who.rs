//! The names of those with access.

use std::sync::Arc;

use tower_throttle::plain_text;

/// The name of a visitor with access: the author of its changes.
///
/// It is at most 256 bytes of plain text. The rest is cut off, and control characters are replaced:
/// the name is written to logs and into control documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who(Arc<str>);

/// The longest author of a control document, in bytes.
const LONGEST: usize = 256;

impl Who {
    /// Names a visitor: a user of the application, for example.
    #[must_use]
    pub fn new(name: impl AsRef<str>) -> Self {
        let mut plain = plain_text(name.as_ref()).into_owned();
        while plain.len() > LONGEST {
            plain.pop();
        }
        Self(plain.into())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Who;

    #[test]
    fn a_name_is_a_short_plain_text() {
        assert_eq!(Who::new("Ann Müller").name(), "Ann Müller");
        let hostile = "ann\nERROR \u{1b}[31m\u{202e}gnp\u{2028}x\0";
        let plain = Who::new(hostile);
        assert!(!plain.name().chars().any(char::is_control));
        assert_eq!(
            plain.name(),
            "ann\u{fffd}ERROR \u{fffd}[31m\u{fffd}gnp\u{fffd}x\u{fffd}"
        );
        assert_eq!(Who::new("é".repeat(1_000)).name(), "é".repeat(128));
        assert_eq!(Who::new("\n".repeat(1_000)).name().len(), 255);
    }
}
