//! Structs of counts, one for each value of a label.

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

            pub(super) fn add(&mut self, other: &Self) {
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
