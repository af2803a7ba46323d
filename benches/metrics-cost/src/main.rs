//! What do metrics, lists of denials and shadow policies cost each request? Does the work of the rows
//! of `benches/rivals` with the crate and with a copy in which these do nothing, in turns.
//!
//! Prints a line for each row: its name, the nanoseconds of one request without, and the median of the
//! ratios. `scripts/metrics-cost` makes the copy, and adds up several runs.

mod contender;

use std::{env, fmt::Debug, hint::black_box, str::FromStr, time::Duration};

/// The work of a row: makes so many requests, and returns how long they took.
type Work = Box<dyn Fn(u64) -> Duration>;

contender::contender!(with, with);
contender::contender!(without, without);

/// How long one turn takes.
const TURN: Duration = Duration::from_millis(12);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["time", redis, turns, first, ref rows @ ..] => {
            for row in rows {
                time(
                    (*row).to_owned().leak(),
                    redis,
                    number(turns),
                    first == "with",
                );
            }
        }
        // To count instructions: one contender by itself.
        ["run", redis, contender, row, requests] => {
            let prepare = match contender {
                "with" => with::prepare,
                _ => without::prepare,
            };
            black_box(prepare(row.to_owned().leak(), redis)(number(requests)));
        }
        _ => panic!("time REDIS TURNS FIRST ROW.. | run REDIS CONTENDER ROW REQUESTS"),
    }
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a number")
}

/// `with_first`: which of them is made first.
fn time(row: &'static str, redis: &str, turns: usize, with_first: bool) {
    let early = with_first.then(|| with::prepare(row, redis));
    let without = without::prepare(row, redis);
    let with = early.unwrap_or_else(|| with::prepare(row, redis));
    let for_2_000 = without(2_000).as_secs_f64();
    let requests = ((2_000.0 * TURN.as_secs_f64() / for_2_000) as u64).max(1_000);
    let (mut times, mut ratios) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        let one_first = turn % 2 == 0;
        let first = if one_first { &with } else { &without }(requests).as_secs_f64();
        let second = if one_first { &without } else { &with }(requests).as_secs_f64();
        let (one, other) = if one_first {
            (first, second)
        } else {
            (second, first)
        };
        times.push(other * 1e9 / requests as f64);
        ratios.push(one / other);
    }
    println!("{row}\t{:.1}\t{:.4}", median(times), median(ratios));
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
