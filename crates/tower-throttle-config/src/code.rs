//! The codes of mistakes that only files have.

/// Gives each mistake that only files have its code: `docs/errors.md` explains all of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident => $code:literal,)+) => {
        /// A mistake that only files have. Those of values are a [`ConfigError`].
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Code {
            $($(#[$doc])* $variant,)+
        }

        impl Code {
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }

        #[cfg(test)]
        const CODES: &[&str] = &[$($code),+];
    };
}

codes! {
    /// The file cannot be read.
    Unreadable => "file-unreadable",
    /// The file is larger than [`MAX_BYTES`](super::MAX_BYTES).
    TooLarge => "file-too-large",
    /// The file is not UTF-8.
    NotText => "file-not-utf8",
    /// The text is not TOML.
    Syntax => "file-syntax",
    /// Lists and tables are too deep inside each other.
    TooDeep => "file-too-deep",
    /// The file is written for another version of this crate.
    Version => "file-version",
    /// A field that is not known.
    UnknownField => "unknown-field",
    /// A field that has to be there.
    MissingField => "missing-field",
    /// A field that is there twice.
    DuplicateField => "duplicate-field",
    /// A field whose value is of another type.
    WrongType => "wrong-type",
    /// A word that is none of a fixed set.
    UnknownWord => "unknown-word",
    /// A number outside of its range.
    OutOfRange => "out-of-range",
    /// A list or a text without anything in it.
    Empty => "empty-value",
    /// None or several of some fields, of which there is one.
    NotOne => "not-exactly-one",
    /// A field without another one that it belongs to.
    Unused => "unused-field",
    /// The name of a policy that is not in the file.
    UnknownPolicy => "unknown-policy",
    /// A policy that no layer and no limiter has.
    UnusedPolicy => "unused-policy",
    /// The name of a reader that is not registered.
    UnknownReader => "unknown-reader",
    /// The name of a tier that is not in the table.
    UnknownTier => "unknown-tier",
    /// A pattern of a condition that no request could match.
    BadPattern => "bad-pattern",
    /// A field that needs a feature of this crate that is off.
    #[cfg_attr(
        all(feature = "axum", feature = "redis"),
        expect(dead_code, reason = "no such feature is off")
    )]
    FeatureOff => "feature-off",
    /// A setting that cannot change while the process runs.
    NotReloadable => "not-reloadable",
    /// A panic while a file was checked.
    Panicked => "check-panicked",
    /// A variable of the environment that is not set.
    UnsetVariable => "unset-variable",
    /// A `${..}` that is not closed, or whose name is no name.
    BadVariable => "bad-variable",
}

#[cfg(test)]
mod tests {
    use super::CODES;
    use crate::tests::repository;

    /// One row of the page for each code, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_code_of_a_file_once() {
        let Some(page) = repository::read("docs/errors.md") else {
            return;
        };
        let table = page.split("\n## ").find(|part| part.starts_with("Files"));
        let rows = table.expect("its table").lines();
        let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        assert_eq!(listed.collect::<Vec<_>>(), CODES);
    }
}
