//! Structs of counts, one for each value of a label.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines a struct of counts whose field names are the values of a label.
macro_rules! counts {
    (
        $(#[$about:meta])*
        $type:ident, by $label:literal, as $method:ident {
            $($(#[$field_about:meta])* $field:ident,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $type {
            $($(#[$field_about])* pub $field: u64,)+
        }

        impl $type {
            #[doc = concat!("Returns each value of the label `", $label, "` with its count.")]
            pub fn $method(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),+].into_iter()
            }

            /// Returns the sum of all.
            pub fn total(&self) -> u64 {
                [$(self.$field),+].into_iter().sum()
            }

            /// Takes the counts in the order of the fields.
            pub(crate) const fn from_array(
                counts: [u64; [$(stringify!($field)),+].len()],
            ) -> Self {
                let [$($field),+] = counts;
                Self { $($field),+ }
            }

            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)+
            }

            /// Returns what was counted after a former look.
            pub(super) fn since(&self, former: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(former.$field),)+
                }
            }
        }
    };
}

pub(super) use counts;

/// Counts that many threads add to, in the order of the fields of such a struct.
#[derive(Debug)]
pub(crate) struct Tally<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Tally<N> {
    /// Adds 1 in a place, if there is one.
    pub(crate) fn add(&self, place: usize) {
        if let Some(count) = self.0.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> [u64; N] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
