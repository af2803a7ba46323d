//! Draws what became of the requests, as an SVG.

use tower_throttle::Algorithm;

use super::replay::{END_MS, QUOTAS, Replay, Request, STEP_MS};

/// The heights of the lowest mark and of the first bar, in pixels from above.
const MARKS: u64 = 104;
const BARS: u64 = 118;
const BAR: u64 = 5;
/// The height of the chart of what remains.
const CHART: u64 = 64;

/// Returns each picture, and the name of its file.
pub(crate) fn all() -> impl Iterator<Item = (String, String)> {
    QUOTAS.iter().map(|(name, quota)| {
        let picture = draw(&Replay::new(quota), quota);
        (format!("algorithm-{name}.svg"), picture)
    })
}

fn draw(replay: &Replay, quota: &str) -> String {
    let (bars, bars_end) = match replay.quota.algorithm() {
        Algorithm::LeakyBucket => bars(replay, "wait"),
        Algorithm::Concurrency => bars(replay, "run for 6 s"),
        _ => (String::new(), BARS),
    };
    let bottom = bars_end + CHART;
    let parts = [
        head(replay, quota, bottom + 26),
        title(replay, quota),
        axis(replay.quota.algorithm(), bottom),
        replay.phases().map(marks).collect(),
        bars,
        remaining(replay, bottom),
    ];
    parts.concat() + "</svg>\n"
}

fn head(replay: &Replay, quota: &str, height: u64) -> String {
    let (name, style) = (replay.quota.algorithm(), include_str!("style.css"));
    let results = replay.phases().map(result).collect::<Vec<_>>().join(", ");
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="none" role="img" aria-labelledby="title desc">
<title id="title">{name:?}: {quota}</title>
<desc id="desc">How many requests are admitted. {results}. A line shows what remains.</desc>
<style>
{style}</style>
"#
    )
}

/// Returns how many requests of a phase were admitted.
fn result(requests: &[Request]) -> String {
    let (phase, all) = (requests[0].phase, requests.len());
    format!("{phase}: {} of {all}", admitted(requests))
}

fn admitted(requests: &[Request]) -> usize {
    requests.iter().flat_map(|one| one.until_ms).count()
}

/// Returns the name of the algorithm, and what the marks mean.
fn title(replay: &Replay, quota: &str) -> String {
    let admitted = admitted(&replay.requests);
    let denied = replay.requests.len() - admitted;
    let parts = [
        text("name", 8, 18, &format!("{:?}", replay.quota.algorithm())),
        text("muted", 132, 18, quota),
        mark(566, 14, true) + &text("", 576, 18, &format!("{admitted} admitted")),
        mark(676, 14, false) + &text("", 686, 18, &format!("{denied} denied")),
    ];
    parts.concat()
}

/// Returns a mark for each request of a phase. Those that arrive together lie on top of each other.
fn marks(requests: &[Request]) -> String {
    let [start, end] = [0, requests.len() - 1].map(|place| x(requests[place].at_ms));
    let groups = requests.chunk_by(|one, next| one.at_ms == next.at_ms);
    let marks = groups.flat_map(|group| {
        let places = (0..).zip(group);
        places.map(|(place, one)| mark(x(one.at_ms), MARKS - 10 * place, one.until_ms.is_some()))
    });
    text("muted middle", (start + end) / 2, 46, &result(requests)) + &marks.collect::<String>()
}

fn mark(x: u64, y: u64, is_admitted: bool) -> String {
    match is_admitted {
        true => format!("<circle class=\"admitted\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>\n"),
        false => path("denied", &format!("M{} {}l6 6m0-6l-6 6", x - 3, y - 3)),
    }
}

/// Returns a bar for each admitted request, and where the bars end.
fn bars(replay: &Replay, label: &str) -> (String, u64) {
    let places = replay.quota.capacity();
    let admitted = replay.requests.iter();
    let admitted = admitted.filter_map(|one| Some((one.at_ms, one.until_ms?)));
    let bars = (0..).zip(admitted).map(|(number, (at_ms, until_ms))| {
        // The first to come is the first to leave its place.
        let y = BARS + BAR * (number % places);
        let bar = path(
            "bar",
            &format!("M{} {y}H{}", x(at_ms), x(until_ms.min(END_MS))),
        );
        match until_ms < END_MS {
            true => bar + &path("turn", &format!("M{} {y}h3", x(until_ms))),
            false => bar,
        }
    });
    let bars = text("", 8, BARS + 20, label) + &bars.collect::<String>();
    (bars, BARS + BAR * (places + 2))
}

/// Returns the line of what remains, and the bans of a penalty, when nothing does.
fn remaining(replay: &Replay, bottom: u64) -> String {
    let (top, capacity) = (bottom - CHART, replay.quota.capacity());
    let (mut line, mut bans) = (String::new(), String::new());
    for same in replay.remaining.chunk_by(|one, next| one.1 == next.1) {
        let (start_ms, units) = same[0];
        let (start, end) = (x(start_ms), x(start_ms + STEP_MS * same.len() as u64));
        line += &format!("H{start}V{}", bottom - CHART * units / capacity);
        if replay.quota.algorithm() == Algorithm::Penalty && units == 0 {
            bans += &path("ban", &format!("M{start} {top}H{end}V{bottom}H{start}z"));
            bans += &text("middle", (start + end) / 2, top + 20, "4 denials: banned");
        }
    }
    let (start, end) = (x(0), x(END_MS));
    let parts = [
        text("", 8, bottom - CHART / 2, "remaining"),
        text("muted end", start - 8, top + 4, &capacity.to_string()),
        text("muted end", start - 8, bottom + 4, "0"),
        path("below", &format!("M{start} {bottom}{line}H{end}V{bottom}")),
        path("remaining", &format!("M{start} {top}{line}H{end}")),
        bans,
    ];
    parts.concat()
}

/// Returns the axis, and the edges of windows.
fn axis(algorithm: Algorithm, bottom: u64) -> String {
    let mut axis = path("line", &format!("M{} {bottom}H{}", x(0), x(END_MS)));
    for (number, at_ms) in (1..).zip((0..END_MS).step_by(10_000)) {
        let (x, y) = (x(at_ms), bottom + 18);
        axis += &path("line", &format!("M{x} {bottom}v5"));
        axis += &text("muted middle", x, y, &format!("{} s", at_ms / 1_000));
        if let Algorithm::FixedWindow | Algorithm::SlidingWindow = algorithm {
            axis += &path("edge", &format!("M{x} 54V{bottom}"));
            axis += &text("muted", x + 40, y, &format!("window {number}"));
        }
    }
    axis
}

/// Returns where a time is, in pixels from the left.
fn x(at_ms: u64) -> u64 {
    100 + at_ms * 18 / 1_000
}

fn text(class: &str, x: u64, y: u64, words: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>\n")
}

fn path(class: &str, d: &str) -> String {
    format!("<path class=\"{class}\" d=\"{d}\"/>\n")
}
