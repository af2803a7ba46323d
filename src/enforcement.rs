//! For which callers a policy is enforced.

use siphasher::sip::SipHasher13;

/// For which callers a policy is enforced. For all others it is a shadow policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Enforcement {
    #[default]
    ForAll,
    /// For this percent of all keys, by a hash of the policy's name and the key. A larger share
    /// includes the callers of a smaller one. Another policy chooses others.
    For(u8),
    ForNone,
}

impl Enforcement {
    /// Returns whether it is enforced for this key of the policy with this hash.
    pub(crate) fn includes(self, policy: (u64, u64), key: &[u8]) -> bool {
        match self {
            Self::ForAll => true,
            Self::For(percent) => is_in_share(percent, policy, key),
            Self::ForNone => false,
        }
    }

    /// Returns whether it may be a shadow policy for some caller.
    pub(crate) fn may_be_shadow(self) -> bool {
        self != Self::ForAll
    }
}

/// Returns whether a share takes this key of the policy with this hash. The choice is the same in
/// each process and each release.
fn is_in_share(percent: u8, policy: (u64, u64), key: &[u8]) -> bool {
    let hash = SipHasher13::new_with_keys(policy.0, policy.1).hash(key);
    // The place of the hash among all hashes, in percent, rounded down.
    let place = (u128::from(hash) * 100) >> 64;
    place < u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::is_in_share;

    const POLICY: (u64, u64) = (7, 11);

    fn share_of(percent: u8) -> usize {
        let keys = (0_u32..100_000).map(u32::to_le_bytes);
        let taken = keys.filter(|key| is_in_share(percent, POLICY, key));
        taken.count()
    }

    #[test]
    fn a_share_is_as_large_as_it_says() {
        assert_eq!((share_of(0), share_of(100)), (0, 100_000));
        for percent in [1, 10, 50, 90, 99] {
            let expected = usize::from(percent) * 1_000;
            // Six standard deviations.
            let bound =
                (6.0 * (f64::from(percent) * f64::from(100 - percent) * 10.0).sqrt()) as usize;
            assert!(share_of(percent).abs_diff(expected) <= bound, "{percent}");
        }
    }

    #[test]
    fn a_larger_share_includes_a_smaller_one() {
        for key in (0_u32..10_000).map(u32::to_le_bytes) {
            let in_ten = is_in_share(10, POLICY, &key);
            assert!(!in_ten || is_in_share(11, POLICY, &key));
        }
    }

    /// Another hash would move callers from one side to the other with a release.
    #[test]
    fn the_choice_never_changes() {
        let name = crate::policy_name::Name::new("api").map(|name| name.hash);
        let taken = (0_u64..40).filter(|number| {
            let key = crate::Key::from(*number);
            name.is_some_and(|name| is_in_share(25, name, key.as_bytes()))
        });
        let expected = [1, 8, 9, 10, 12, 15, 16, 17, 19, 25, 26, 30, 31, 35, 37];
        assert_eq!(taken.collect::<Vec<_>>(), expected);
    }
}
