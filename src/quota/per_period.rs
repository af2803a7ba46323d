//! The constructors that every rate has.

/// `new` takes the limit and the period.
macro_rules! per_period {
    ($type:ident) => {
        impl $type {
            /// Allows `limit` units per second.
            pub const fn per_second(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(1))
            }

            /// Allows `limit` units per minute.
            pub const fn per_minute(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(60))
            }

            /// Allows `limit` units per hour.
            pub const fn per_hour(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(3_600))
            }

            /// Allows `limit` units per 24 hours.
            pub const fn per_day(limit: u64) -> Self {
                Self::new(limit, Duration::from_secs(86_400))
            }
        }
    };
}
pub(crate) use per_period;
