//! The choice of what happens while a store fails.

use std::{fmt, str::FromStr};

use crate::{
    ConfigError,
    util::text::{Mistake, Words, choice},
};

/// Chooses how a policy decides while its store fails.
///
/// [`Decision::source`](crate::Decision::source) reports where the decision came from. An outage is
/// logged when it starts and when it ends.
///
/// In a check of several policies, one with [`Deny`](Self::Deny) denies the check. The
/// [local](Self::Local) ones decide together, all or none, and those with
/// [`Allow`](Self::Allow) are left out.
///
/// **Overload.** More checks at once than the store can answer are a failure, too. But `Allow`
/// denies them: a flood must not switch the limits off.
///
/// **Corrupt state** under a caller's key is not such a failure: that caller gets 503 until the
/// key has expired.
///
/// **As text**: `local`, `share of 4`, `allow` or `deny`.
///
/// ```
/// use tower_throttle::OnStoreFailure;
///
/// assert_eq!("share of 4".parse(), Ok(OnStoreFailure::share_of(4)));
/// assert_eq!(OnStoreFailure::local().to_string(), "local");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Decide in this process, by the whole quota or a share of it. The default is the whole
    /// quota: [`local`](Self::local).
    ///
    /// The local buckets start full and are kept, so a store that fails again and again grants
    /// no new burst each time.
    ///
    /// **The cost**: during an outage, each process grants its share in addition to what the store
    /// has granted. If `share_of` is the number of processes, all of them together grant the quota,
    /// rounded up to one unit for each process. A window is rounded up each time: with a limit of
    /// 1, ten processes grant 10 in each window. If `share_of` is 1, *n* processes grant *n* times
    /// the quota.
    ///
    /// A request that costs more than the share is denied as under [`Deny`](Self::Deny), because
    /// no share can grant it. A share that would take more than 104 days to fill fills in 104
    /// days.
    #[non_exhaustive]
    Local {
        /// How many processes share the quota.
        share_of: u32,
    },
    /// Leave the policy out: it limits nothing during the outage. **The danger**: a flood
    /// reaches your handlers. If no other policy remains, the request is forwarded unchecked.
    Allow,
    /// Deny the request. A layer answers 503 with `Retry-After: 5`, never 429, and a
    /// [`Limiter`](crate::Limiter) returns the error. Use it for a limit that guards a secret,
    /// such as the one on a login. **The danger**: while the store is down, the guarded service is
    /// down, too.
    Deny,
}

impl OnStoreFailure {
    /// Decides in this process, by the whole quota.
    #[must_use]
    pub const fn local() -> Self {
        Self::share_of(1)
    }

    /// Decides in this process, by one of `processes` equal shares of the quota. Zero is an
    /// error when the layer or limiter is built.
    ///
    /// ```
    /// use tower_throttle::{OnStoreFailure, Policy, TokenBucket};
    ///
    /// // Four instances of this service together allow 100 a second.
    /// let policy = Policy::new("search", TokenBucket::per_second(100))
    ///     .on_store_failure(OnStoreFailure::share_of(4));
    /// ```
    #[must_use]
    pub const fn share_of(processes: u32) -> Self {
        Self::Local {
            share_of: processes,
        }
    }
}

impl Default for OnStoreFailure {
    fn default() -> Self {
        Self::local()
    }
}

/// Writes its text.
impl fmt::Display for OnStoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { share_of: 1 } => f.write_str("local"),
            Self::Local { share_of } => write!(f, "share of {share_of}"),
            Self::Allow => f.write_str("allow"),
            Self::Deny => f.write_str("deny"),
        }
    }
}

impl FromStr for OnStoreFailure {
    type Err = ConfigError;

    /// Reads `local`, `share of N`, `allow` or `deny`.
    ///
    /// # Errors
    ///
    /// Returns an error with a [span](ConfigError::span) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        read(text).map_err(|Mistake { at, reason }| {
            let message = format!("on_store_failure {text:?}: {reason}");
            ConfigError::new("on-store-failure-text", message).with_span(at)
        })
    }
}

fn read(text: &str) -> Result<OnStoreFailure, Mistake> {
    let mut words = Words::new(text);
    let first = words.peek();
    let choice = if words.take("local") {
        OnStoreFailure::local()
    } else if words.take("allow") {
        OnStoreFailure::Allow
    } else if words.take("deny") {
        OnStoreFailure::Deny
    } else if words.take("share of") {
        let number = words.peek();
        let too_many = |_| {
            let reason = format!("{number} is too large; use a number below 2^32");
            Mistake::new(number.range(), reason)
        };
        OnStoreFailure::share_of(u32::try_from(words.number()?).map_err(too_many)?)
    } else {
        let (name, _) = words.take_words(&[]);
        let known = ["local", "share of 4", "allow", "deny"];
        let reason = format!("no such choice{}", choice(&name, &known));
        return Err(Mistake::new(first.range(), reason));
    };
    words.end()?;
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_has_a_text() {
        for (choice, text) in [
            (OnStoreFailure::local(), "local"),
            (OnStoreFailure::share_of(0), "share of 0"),
            (OnStoreFailure::share_of(4), "share of 4"),
            (OnStoreFailure::share_of(u32::MAX), "share of 4294967295"),
            (OnStoreFailure::Allow, "allow"),
            (OnStoreFailure::Deny, "deny"),
        ] {
            assert_eq!(choice.to_string(), text);
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(text.to_uppercase().parse(), Ok(choice));
        }
        assert_eq!("share of 1".parse(), Ok(OnStoreFailure::local()));
        assert_eq!("share_of 4".parse(), Ok(OnStoreFailure::share_of(4)));
    }

    #[test]
    fn other_texts_are_errors_with_a_proposal() {
        for (text, expected) in [
            (
                "",
                r#"on_store_failure "": no such choice; use "local", "share of 4", "allow" or "deny""#,
            ),
            (
                "lokal",
                r#"on_store_failure "lokal": no such choice; did you mean "local"?"#,
            ),
            (
                "share",
                r#"on_store_failure "share": no such choice; did you mean "share of 4"?"#,
            ),
            (
                "share of all",
                r#"on_store_failure "share of all": "all" is no whole number; write it in digits, as in "10" or "1_000""#,
            ),
            (
                "share of 4294967296",
                r#"on_store_failure "share of 4294967296": "4294967296" is too large; use a number below 2^32"#,
            ),
            (
                "deny, allow",
                r#"on_store_failure "deny, allow": "," is too much; drop it"#,
            ),
        ] {
            let error = text.parse::<OnStoreFailure>().map_err(|it| {
                let is_at_a_word = it.span().is_some_and(|at| text.get(at).is_some());
                (it.to_string(), is_at_a_word)
            });
            assert_eq!(error, Err((expected.to_owned(), true)));
        }
    }
}
