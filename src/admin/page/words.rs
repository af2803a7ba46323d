//! Numbers, durations and times in words. The script of the page has the same.

/// Writes a number with commas.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut written = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

/// Writes a number and what is counted.
pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Writes a share of a whole, with one digit behind the point: `12.5 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    let tenths = (u128::from(part) * 2_000 / u128::from(whole)).div_ceil(2);
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}

const UNITS: [(&str, u64); 4] = [("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// Writes a duration with its two largest units, rounded up to seconds: `4 min 10 s`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    let mut units = UNITS.iter().skip_while(|(_, size)| seconds < *size);
    let Some((name, size)) = units.next() else {
        return "0 s".to_owned();
    };
    let mut written = amount(seconds / size, name);
    if let Some((name, next)) = units.next() {
        let rest = seconds % size / next;
        if rest > 0 {
            written.push(' ');
            written.push_str(&amount(rest, name));
        }
    }
    written
}

fn amount(amount: u64, unit: &str) -> String {
    let ending = if unit == "day" && amount > 1 { "s" } else { "" };
    format!("{} {unit}{ending}", count(amount))
}

/// Writes how long ago a time was.
pub(super) fn ago(at_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(at_ms) / 1_000 {
        0 => "now".to_owned(),
        seconds => format!("{} ago", duration(seconds * 1_000)),
    }
}

/// Writes in how long a time will be.
pub(super) fn ahead(at_ms: u64, now_ms: u64) -> String {
    match at_ms.saturating_sub(now_ms) {
        0 => "now".to_owned(),
        ms => format!("in {}", duration(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::{ago, ahead, count, duration, share};

    #[test]
    fn durations_have_their_two_largest_units() {
        for (ms, words) in [
            (0, "0 s"),
            (1, "1 s"),
            (1_001, "2 s"),
            (59_999, "1 min"),
            (250_000, "4 min 10 s"),
            (3_600_000, "1 h"),
            (3_661_000, "1 h 1 min"),
            (86_399_001, "1 day"),
            (180_000_000, "2 days 2 h"),
            (86_400_000 * 1_234, "1,234 days"),
        ] {
            assert_eq!(duration(ms), words, "{ms}");
        }
    }

    #[test]
    fn times_are_told_from_now() {
        assert_eq!(ago(1_000, 1_999), "now");
        assert_eq!(ago(1_000, 3_999), "2 s ago");
        assert_eq!(ago(9_000, 1_000), "now");
        assert_eq!(ahead(1_000, 1_000), "now");
        assert_eq!(ahead(1_001, 1_000), "in 1 s");
    }

    #[test]
    fn numbers_have_commas_and_shares_a_digit() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        let shares = [(0, 0), (1, 3), (2, 3), (1, 1), (1, 8)];
        let shares = shares.map(|(part, whole)| share(part, whole));
        assert_eq!(shares, ["0 %", "33.3 %", "66.7 %", "100 %", "12.5 %"]);
    }
}
