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
