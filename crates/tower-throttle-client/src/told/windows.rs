//! What is left of the partner's windows: `RateLimit` of the IETF, and the forms before it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

use super::{seconds, texts};

/// A window of the partner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// How many calls it still admits.
    pub(super) remaining: u64,
    /// How long it lasts.
    pub(super) reset: Duration,
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The fields that come in pairs: calls that are left, and when the window ends.
const PAIRS: [[HeaderName; 2]; 4] = [
    [
        HeaderName::from_static("ratelimit-remaining"),
        HeaderName::from_static("ratelimit-reset"),
    ],
    [
        HeaderName::from_static("x-ratelimit-remaining"),
        // Discord sends it beside the next one, which is the time of its own clock.
        HeaderName::from_static("x-ratelimit-reset-after"),
    ],
    [
        HeaderName::from_static("x-ratelimit-remaining"),
        HeaderName::from_static("x-ratelimit-reset"),
    ],
    [
        HeaderName::from_static("x-rate-limit-remaining"),
        HeaderName::from_static("x-rate-limit-reset"),
    ],
];

/// Returns the windows of the first form that can be read.
pub(super) fn read(headers: &HeaderMap, now: SystemTime) -> Vec<Window> {
    let mut windows: Vec<_> = texts(headers, RATELIMIT).flat_map(of_ietf).collect();
    if windows.is_empty() {
        let pairs = PAIRS
            .into_iter()
            .find_map(|pair| of_pair(headers, pair, now));
        windows.extend(pairs);
    }
    windows
}

/// Reads the list of drafts 8 and later (`"day";r=50;t=30`), or the dictionary of draft 7
/// (`limit=100, remaining=50, reset=30`).
fn of_ietf(text: &str) -> Vec<Window> {
    let list: List = Parser::new(text).parse().unwrap_or_default();
    let items = list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => window(item.params.get("r"), item.params.get("t")),
        ListEntry::InnerList(_) => None,
    });
    let fields: Dictionary = Parser::new(text).parse().unwrap_or_default();
    let field = |name| match fields.get(name)? {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    let combined = window(field("remaining"), field("reset"));
    items.chain(combined).collect()
}

fn window(remaining: Option<&BareItem>, reset: Option<&BareItem>) -> Option<Window> {
    let number = |item: Option<&BareItem>| u64::try_from(i64::from(item?.as_integer()?)).ok();
    Some(Window {
        remaining: number(remaining)?,
        reset: Duration::from_secs(number(reset)?),
    })
}

fn of_pair(
    headers: &HeaderMap,
    [remaining, reset]: [HeaderName; 2],
    now: SystemTime,
) -> Option<Window> {
    let remaining = texts(headers, remaining).find_map(|text| text.parse().ok())?;
    let reset = texts(headers, reset).find_map(seconds)?;
    Some(Window {
        remaining,
        reset: until(reset, now),
    })
}

/// Returns the time until a reset that is seconds from now, or seconds or milliseconds since 1970:
/// partners send all three under the same name.
fn until(reset: Duration, now: SystemTime) -> Duration {
    const IN_2001: Duration = Duration::from_secs(1_000_000_000);
    let since_1970 = match reset {
        _ if reset < IN_2001 => return reset,
        _ if reset < IN_2001 * 1_000 => reset,
        _ => reset / 1_000,
    };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.saturating_sub(now)
}
