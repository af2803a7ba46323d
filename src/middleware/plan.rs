//! Which buckets a request is charged to, and how much.

use smallvec::SmallVec;

use super::{
    config::Secret,
    erased::Erased,
    policy::{Rule, When},
};
use crate::{Head, charge::Charge, key::KeyError};

/// The checked policies of a layer: turns a request into the charges of a check.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rules: Box<[Rule]>,
    /// Which requests are limited at all.
    pub(super) when: Option<Erased<When>>,
    pub(super) partition_secret: Option<Secret>,
}

/// The charges of one check. A layer rarely has more policies than fit in place.
pub(super) type Charges<'a> = SmallVec<[Charge<'a>; 4]>;

/// The partition key of each charge, if the layer sends them.
pub(super) type PartitionKeys = Option<Box<[[u8; 12]]>>;

/// A policy found no key in a request.
pub(super) struct MissingKey<'a> {
    pub(super) policy: &'a str,
    pub(super) error: KeyError,
}

impl Plan {
    /// Adds a charge for each policy that applies to a request. `charges` is the caller's, as a
    /// list that is returned would be copied.
    #[inline]
    pub(super) fn evaluate<'a>(
        &'a self,
        head: &Head<'_>,
        charges: &mut Charges<'a>,
    ) -> Result<(), MissingKey<'a>> {
        if self.when.as_ref().is_some_and(|when| !(when.0)(head)) {
            return Ok(());
        }
        for rule in &*self.rules {
            match rule.charge(head) {
                Ok(Some(charge)) => charges.push(charge),
                Ok(None) => {}
                Err(error) => {
                    return Err(MissingKey {
                        policy: &rule.base.name.text,
                        error,
                    });
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::expect_used, reason = "a hash has 32 bytes")]
    pub(super) fn partition_keys(&self, charges: &[Charge<'_>]) -> PartitionKeys {
        let secret = &self.partition_secret.as_ref()?.0;
        let partition_key = |charge: &Charge<'_>| {
            let mut hasher = blake3::Hasher::new_keyed(secret);
            hasher.update(charge.policy().as_bytes());
            // Names are printable, so this byte ends them.
            hasher.update(&[0]);
            hasher.update(charge.key_bytes());
            let hash = hasher.finalize();
            *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
        };
        Some(charges.iter().map(partition_key).collect())
    }
}
