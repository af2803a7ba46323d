//! Any quota that a builder can make, beside its text as a person may write it.

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::support::prelude::*;

/// What a builder makes of the numbers in a text, and the text without its commas.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) built: Result<Quota, ConfigError>,
    start: String,
    options: Vec<String>,
}

impl Form {
    fn new<Q>(start: String, options: Vec<Option<String>>, quota: Q) -> Self
    where
        Q: TryInto<Quota, Error = ConfigError>,
    {
        Self {
            built: quota.try_into(),
            start,
            options: options.into_iter().flatten().collect(),
        }
    }
}

/// A value and one of its texts.
pub(super) type Written<T> = (T, String);

/// Sizes that quotas often have, and any.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..=30_u64,
        6 => 1..=20_000_u64,
        1 => any::<u64>(),
        1 => select(vec![1 << 24, (1 << 24) + 1, (1 << 53) - 1, 1 << 53, u64::MAX]),
    ]
}

fn number() -> impl Strategy<Value = Written<u64>> {
    (size(), any::<bool>()).prop_map(|(number, is_grouped)| {
        let digits = number.to_string();
        let groups = digits.as_bytes().rchunks(3).rev();
        let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
        let text = match is_grouped {
            true => groups.collect::<Vec<_>>().join("_"),
            false => digits,
        };
        (number, text)
    })
}

const UNITS: [(&str, u64); 26] = [
    ("ns", 1),
    ("nanosecond", 1),
    ("nanoseconds", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("microsecond", 1_000),
    ("microseconds", 1_000),
    ("ms", 1_000_000),
    ("millisecond", 1_000_000),
    ("milliseconds", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("second", 1_000_000_000),
    ("seconds", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("minute", 60_000_000_000),
    ("minutes", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("hours", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
    ("days", 86_400_000_000_000),
    ("week", 604_800_000_000_000),
    ("weeks", 604_800_000_000_000),
];

fn time() -> impl Strategy<Value = Written<Duration>> {
    let count = prop_oneof![8 => 0..=60_u64, 1 => 0..=10_000_000_u64];
    (count, select(&UNITS)).prop_map(|(count, (unit, nanos))| {
        let nanos = u128::from(count) * u128::from(nanos);
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let seconds = u64::try_from(seconds).expect("a time that fits");
        let nanos = u32::try_from(nanos).expect("less than a second");
        (Duration::new(seconds, nanos), format!("{count} {unit}"))
    })
}

/// What follows `per`.
fn period() -> impl Strategy<Value = Written<Duration>> {
    let one = select(&UNITS).prop_map(|(unit, nanos)| (Duration::from_nanos(nanos), unit.into()));
    prop_oneof![one, time()]
}

fn sets(name: &str, value: &Option<Written<impl Copy>>) -> Option<String> {
    let (_, text) = value.as_ref()?;
    Some(format!("{name} {text}"))
}

fn flag(name: &str, is_set: bool) -> Option<String> {
    is_set.then(|| name.to_owned())
}

fn token_bucket() -> impl Strategy<Value = Form> {
    let options = (option::of(number()), option::of(number()), any::<bool>());
    let name = select(vec!["", "token bucket of "]);
    (name, number(), period(), options).prop_map(|(name, limit, period, options)| {
        let (burst, initial, at_once) = options;
        let mut bucket = TokenBucket::new(limit.0, period.0);
        let texts = vec![
            sets("burst", &burst),
            sets("initial", &initial),
            flag("refill at once", at_once),
        ];
        if let Some((burst, _)) = burst {
            bucket = bucket.burst(burst);
        }
        if let Some((initial, _)) = initial {
            bucket = bucket.initial(initial);
        }
        if at_once {
            bucket = bucket.refill_at_once();
        }
        Form::new(format!("{name}{} per {}", limit.1, period.1), texts, bucket)
    })
}

fn without_refill() -> impl Strategy<Value = Form> {
    let name = select(vec!["", "token bucket of "]);
    (name, number(), option::of(number())).prop_map(|(name, burst, initial)| {
        let bucket = TokenBucket::without_refill(burst.0);
        let texts = vec![sets("initial", &initial)];
        let bucket = match initial {
            Some((initial, _)) => bucket.initial(initial),
            None => bucket,
        };
        Form::new(format!("{name}{} without refill", burst.1), texts, bucket)
    })
}

fn leaky_bucket() -> impl Strategy<Value = Form> {
    let room = option::of((any::<bool>(), number()));
    (number(), period(), room).prop_map(|(limit, period, room)| {
        let start = format!("leaky bucket of {} per {}", limit.1, period.1);
        let bucket = LeakyBucket::new(limit.0, period.0);
        match room {
            None => Form::new(start, vec![], bucket),
            Some((true, (units, text))) => Form::new(
                start,
                vec![Some(format!("queue {text}"))],
                bucket.queue(units),
            ),
            Some((false, (units, text))) => Form::new(
                start,
                vec![Some(format!("capacity {text}"))],
                bucket.capacity(units),
            ),
        }
    })
}

fn fixed_window() -> impl Strategy<Value = Form> {
    let flags = (any::<bool>(), any::<bool>());
    (number(), period(), flags).prop_map(|(limit, period, (is_aligned, is_spread))| {
        let mut window = FixedWindow::new(limit.0, period.0);
        if is_aligned {
            window = window.aligned();
        }
        if is_spread {
            window = window.spread();
        }
        let texts = vec![flag("aligned", is_aligned), flag("spread", is_spread)];
        let start = format!("fixed window of {} per {}", limit.1, period.1);
        Form::new(start, texts, window)
    })
}

fn calendar_window() -> impl Strategy<Value = Form> {
    type Window = fn(u64) -> FixedWindow;

    let periods: [(Window, &str); 5] = [
        (FixedWindow::per_calendar_day, "calendar day"),
        (FixedWindow::per_calendar_week, "calendar week"),
        (FixedWindow::per_calendar_month, "calendar month"),
        (FixedWindow::per_calendar_month, "month"),
        (FixedWindow::per_calendar_month, "1 month"),
    ];
    let name = select(vec!["", "fixed window of "]);
    (name, number(), 0..periods.len(), any::<bool>()).prop_map(
        move |(name, limit, period, is_spread)| {
            let (window, period) = periods[period];
            let window = match is_spread {
                true => window(limit.0).spread(),
                false => window(limit.0),
            };
            let start = format!("{name}{} per {period}", limit.1);
            Form::new(start, vec![flag("spread", is_spread)], window)
        },
    )
}

fn sliding() -> impl Strategy<Value = Form> {
    (number(), period(), option::of(option::of(number()))).prop_map(|(limit, period, log)| {
        let rate = format!("{} per {}", limit.1, period.1);
        let Some(entries) = log else {
            let window = SlidingWindow::new(limit.0, period.0);
            return Form::new(format!("sliding window of {rate}"), vec![], window);
        };
        let log = SlidingLog::new(limit.0, period.0);
        let texts = vec![sets("max entries", &entries)];
        let log = match entries {
            Some((entries, _)) => log.max_entries(entries),
            None => log,
        };
        Form::new(format!("sliding log of {rate}"), texts, log)
    })
}

fn concurrency() -> impl Strategy<Value = Form> {
    let name = select(vec!["", "concurrency of "]);
    (name, number(), option::of(time())).prop_map(|(name, limit, lifetime)| {
        let concurrency = Concurrency::new(limit.0);
        let texts = vec![sets("lifetime", &lifetime)];
        let concurrency = match lifetime {
            Some((lifetime, _)) => concurrency.lifetime(lifetime),
            None => concurrency,
        };
        Form::new(format!("{name}{} at once", limit.1), texts, concurrency)
    })
}

fn penalty() -> impl Strategy<Value = Form> {
    let times = (
        option::of(time()),
        option::of(time()),
        option::of(time()),
        option::of(time()),
    );
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (number(), times, flags).prop_map(|(strikes, times, (is_joined, is_one, prolongs))| {
        let (within, lasting, longest, peace) = times;
        let mut penalty = Penalty::after(strikes.0);
        let word = if is_one { "strike" } else { "strikes" };
        let mut start = format!("penalty after {} {word}", strikes.1);
        let mut texts = vec![
            sets("lasting", &lasting),
            sets("doubling up to", &longest),
            sets("forgiven after", &peace),
            flag("prolonging", prolongs),
        ];
        match sets("within", &within) {
            Some(within) if is_joined => start = format!("{start} {within}"),
            within => texts.push(within),
        }
        if let Some((within, _)) = within {
            penalty = penalty.within(within);
        }
        if let Some((lasting, _)) = lasting {
            penalty = penalty.lasting(lasting);
        }
        if let Some((longest, _)) = longest {
            penalty = penalty.doubling_up_to(longest);
        }
        if let Some((peace, _)) = peace {
            penalty = penalty.forgiven_after(peace);
        }
        if prolongs {
            penalty = penalty.prolonging();
        }
        Form::new(start, texts, penalty)
    })
}

/// Writes a form as a person may: options in any order, any space, any case.
pub(super) fn loosely(form: Form) -> impl Strategy<Value = Written<Result<Quota, ConfigError>>> {
    let options = Just(form.options).prop_shuffle();
    let style = vec((any::<bool>(), 0..12_usize), 64);
    (options, style).prop_map(move |(options, style)| {
        let mut texts = vec![form.start.clone()];
        texts.extend(options);
        let text: Vec<char> = texts.join(" , ").chars().collect();
        let mut loose = String::new();
        for (place, letter) in text.iter().enumerate() {
            let (is_upper, space) = style[place % style.len()];
            match letter {
                ' ' if text[place - 1].is_alphabetic() && text[place + 1].is_alphabetic() => {
                    loose.push_str([" ", "  ", "\t", "\u{a0}", "_", "-"][space % 6]);
                }
                ' ' => loose.push_str(["", " ", "\r\n"][space % 3]),
                _ if is_upper => loose.push(letter.to_ascii_uppercase()),
                _ => loose.push(*letter),
            }
        }
        (form.built.clone(), loose)
    })
}

pub(super) fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![
        token_bucket(),
        without_refill(),
        leaky_bucket(),
        fixed_window(),
        calendar_window(),
        sliding(),
        concurrency(),
        penalty(),
    ]
}
