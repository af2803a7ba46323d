//! Quotas as text: what is read is what the builders make, and what is written is read again.

mod canonical;
mod mistakes;
mod properties;

/// Names of units, and how many nanoseconds each has.
const UNITS: [(&str, u64); 8] = [
    ("ns nanosecond nanoseconds", 1),
    ("us µs microsecond microseconds", 1_000),
    ("ms millisecond milliseconds", 1_000_000),
    ("s sec second seconds", 1_000_000_000),
    ("m min minute minutes", 60_000_000_000),
    ("h hour hours", 3_600_000_000_000),
    ("d day days", 86_400_000_000_000),
    ("week weeks", 604_800_000_000_000),
];
