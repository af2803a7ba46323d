//! Writes a quota: what is not the default, in one order.

use std::{fmt, time::Duration};

use crate::{
    Quota,
    quota::{
        Params,
        concurrency::DEFAULT_LIFETIME,
        fixed_window::FIRST_MONDAY_MS,
        penalty::{PenaltyParams, TEN_MINUTES},
        sliding_log::DEFAULT_MAX_ENTRIES,
        token_bucket::TokenBucketParams,
        window::{Start, WindowParams},
    },
    util::text::duration_text,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Writes its [text](Self#as-text).
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit();
        let text = duration_text(self.period());
        let period = text.strip_prefix("1 ").unwrap_or(&text);
        match &self.0 {
            Params::TokenBucket(rule) => write_token_bucket(f, rule, period),
            Params::IntervalBucket(rule) => write_interval_bucket(f, rule, period),
            Params::LeakyBucket { rule, paces } => {
                write!(f, "leaky bucket of {limit} per {period}")?;
                match rule.burst {
                    burst if *paces => write!(f, ", queue {}", burst.saturating_sub(1)),
                    burst if burst != limit => write!(f, ", capacity {burst}"),
                    _ => Ok(()),
                }
            }
            Params::FixedWindow(rule) => {
                write!(f, "fixed window of {limit} per ")?;
                match rule.start {
                    Start::Month => f.write_str("calendar month"),
                    Start::Aligned {
                        offset_ms: FIRST_MONDAY_MS,
                    } => f.write_str("calendar week"),
                    Start::Aligned { .. } if self.period() == DAY => f.write_str("calendar day"),
                    Start::Aligned { .. } => write!(f, "{period}, aligned"),
                    Start::FirstUse => f.write_str(period),
                }?;
                if rule.utc_offset_ms != 0 {
                    let sign = if rule.utc_offset_ms < 0 { '-' } else { '+' };
                    let minutes = rule.utc_offset_ms.unsigned_abs() / 60_000;
                    write!(
                        f,
                        ", utc offset {sign}{:02}:{:02}",
                        minutes / 60,
                        minutes % 60
                    )?;
                }
                f.write_str(if rule.spread { ", spread" } else { "" })
            }
            Params::SlidingWindow(_) => write!(f, "sliding window of {limit} per {period}"),
            Params::SlidingLog(_) => {
                write!(f, "sliding log of {limit} per {period}")?;
                match limit > DEFAULT_MAX_ENTRIES {
                    true => write!(f, ", max entries {limit}"),
                    false => Ok(()),
                }
            }
            Params::Concurrency(_) if self.period() == DEFAULT_LIFETIME => {
                write!(f, "{limit} at once")
            }
            Params::Concurrency(_) => write!(f, "{limit} at once, lifetime {text}"),
            Params::Penalty(rule) if rule.pauses => f.write_str("pause"),
            Params::Penalty(rule) => write_penalty(f, rule),
        }
    }
}

fn write_token_bucket(
    f: &mut fmt::Formatter<'_>,
    rule: &TokenBucketParams,
    period: &str,
) -> fmt::Result {
    write!(f, "{} per {period}", rule.limit)?;
    if rule.burst != rule.limit {
        write!(f, ", burst {}", rule.burst)?;
    }
    match rule.initial_ns / rule.interval_ns.max(1) {
        0 => Ok(()),
        missing => write!(f, ", initial {}", rule.burst.saturating_sub(missing)),
    }
}

/// Writes a bucket that is refilled at once, or never.
fn write_interval_bucket(
    f: &mut fmt::Formatter<'_>,
    rule: &WindowParams,
    period: &str,
) -> fmt::Result {
    let (burst, refill) = (rule.limit, rule.refill.unwrap_or_default());
    let is_refilled = refill > 0 || burst == 0;
    match is_refilled {
        true if burst == refill => write!(f, "{refill} per {period}")?,
        true => write!(f, "{refill} per {period}, burst {burst}")?,
        false => write!(f, "{burst} without refill")?,
    }
    if rule.initial_used > 0 {
        write!(f, ", initial {}", burst.saturating_sub(rule.initial_used))?;
    }
    f.write_str(if is_refilled { ", refill at once" } else { "" })
}

fn write_penalty(f: &mut fmt::Formatter<'_>, rule: &PenaltyParams) -> fmt::Result {
    let time = |ms| duration_text(Duration::from_millis(ms));
    let default_ms = TEN_MINUTES.as_millis();
    let strikes = if rule.after == 1 { "strike" } else { "strikes" };
    write!(f, "penalty after {} {strikes}", rule.after)?;
    if u128::from(rule.window_ms) != default_ms {
        write!(f, " within {}", time(rule.window_ms))?;
    }
    if u128::from(rule.first_ms) != default_ms {
        write!(f, ", lasting {}", time(rule.first_ms))?;
    }
    if rule.forgiven_ms > 0 {
        write!(f, ", doubling up to {}", time(rule.longest_ms))?;
        if rule.forgiven_ms != rule.longest_ms {
            write!(f, ", forgiven after {}", time(rule.forgiven_ms))?;
        }
    }
    f.write_str(if rule.prolongs { ", prolonging" } else { "" })
}
