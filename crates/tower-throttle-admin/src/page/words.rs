//! Numbers, durations and times in words. The script of the page has the same.

/// Writes a number with commas.
pub(super) fn count(number: u64) -> String {
    let mut written = number.to_string();
    for place in (1..written.len()).rev().skip(2).step_by(3) {
        written.insert(place, ',');
    }
    written
}

/// Writes a number and what is counted.
pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Writes a share of a whole, with one digit behind the point: `12.5 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 2_000 / u128::from(whole.max(1))).div_ceil(2);
    let number = format!("{}.{}", tenths / 10, tenths % 10);
    format!("{} %", number.trim_end_matches(".0"))
}

const UNITS: [(&str, u64); 4] = [("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// Writes a duration with its two largest units, rounded up to seconds: `4 min 10 s`.
pub(super) fn duration(ms: u64) -> String {
    let mut rest = ms.div_ceil(1_000);
    let amounts = UNITS.map(|(unit, size)| {
        let amount = rest / size;
        rest %= size;
        let ending = if unit == "day" && amount > 1 { "s" } else { "" };
        (amount, format!("{} {unit}{ending}", count(amount)))
    });
    let largest = amounts.into_iter().skip_while(|(amount, _)| *amount == 0);
    let shown = largest.take(2).filter(|(amount, _)| *amount > 0);
    let shown: Vec<_> = shown.map(|(_, written)| written).collect();
    match shown.is_empty() {
        true => "0 s".to_owned(),
        false => shown.join(" "),
    }
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{ago, ahead, count, duration, share};

    /// A test in a browser compares the script with the same examples.
    #[test]
    fn numbers_and_times_are_written_as_in_the_examples() {
        for example in include_str!("words.txt").lines() {
            let (call, expected) = example.split_once(" = ").unwrap();
            let mut parts = call.split(' ');
            let name = parts.next().unwrap();
            let numbers: Vec<u64> = parts.map(|number| number.parse().unwrap()).collect();
            let written = match (name, &numbers[..]) {
                ("count", [number]) => count(*number),
                ("share", [part, whole]) => share(*part, *whole),
                ("duration", [ms]) => duration(*ms),
                ("ago", [at_ms, now_ms]) => ago(*at_ms, *now_ms),
                ("ahead", [at_ms, now_ms]) => ahead(*at_ms, *now_ms),
                other => unreachable!("{other:?}"),
            };
            assert_eq!(written, expected, "{call}");
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
