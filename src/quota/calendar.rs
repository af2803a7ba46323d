//! Months in UTC.
//!
//! Days are counted as in "chrono-Compatible Low-Level Date Algorithms" by Howard Hinnant: a
//! year starts in March, so that the leap day is its last day.

const DAY_MS: u64 = 86_400_000;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAY: u64 = 719_468;
/// Days in 400 years.
const ERA: u64 = 146_097;

/// Returns the end of the month that contains this millisecond since the epoch.
pub(super) const fn month_end_ms(at_ms: u64) -> u64 {
    let day = at_ms / DAY_MS + EPOCH_DAY;
    let (era, day_of_era) = (day / ERA, day % ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months count from March (0) to February (11). 12 is March of the next year.
    let next_month = (5 * day_of_year + 2) / 153 + 1;
    let next_start = if next_month == 12 {
        let year = year_of_era + 1;
        // The era's last year is a leap year.
        365 * year + year / 4 - year / 100 + year / 400
    } else {
        let start_of_year = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
        start_of_year + (153 * next_month + 2) / 5
    };
    (era * ERA + next_start - EPOCH_DAY) * DAY_MS
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// Compares with months that are counted one by one from the epoch.
    #[test]
    fn the_end_of_each_month_until_2400_is_exact() {
        let (mut start_day, mut year, mut month) = (0, 1970, 0_usize);
        while year < 2400 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if is_leap { 29 } else { 28 };
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let length = lengths.get(month).expect("a month");
            let end_ms = (start_day + length) * DAY_MS;
            for at_ms in [start_day * DAY_MS, start_day * DAY_MS + 12_345, end_ms - 1] {
                assert_eq!(month_end_ms(at_ms), end_ms, "{year}-{}", month + 1);
            }
            start_day += length;
            month = (month + 1) % 12;
            year += u64::from(month == 0);
        }
    }
}
