//! Any quota that a builder can make, beside its text as a person may write it.

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::support::prelude::*;

/// What a builder makes of the numbers in a text, and the text without its commas.
#[derive(Clone, Debug)]
pub(super) struct Form<Q = Result<Quota, ConfigError>> {
    pub(super) built: Q,
    start: String,
    options: Vec<String>,
}

impl<Q> Form<Q> {
    fn new(start: String, built: Q) -> Self {
        let options = Vec::new();
        Self {
            built,
            start,
            options,
        }
    }

    /// Sets an option of this name, if there is a value.
    fn set<T>(mut self, name: &str, value: Option<Written<T>>, set: fn(Q, T) -> Q) -> Self {
        if let Some((value, text)) = value {
            self.built = set(self.built, value);
            self.options.push(format!("{name} {text}"));
        }
        self
    }

    fn flag(mut self, name: &str, is_set: bool, set: fn(Q) -> Q) -> Self {
        if is_set {
            self.built = set(self.built);
            self.options.push(name.to_owned());
        }
        self
    }

    fn done(self) -> Form
    where
        Q: TryInto<Quota, Error = ConfigError>,
    {
        Form {
            built: self.built.try_into(),
            start: self.start,
            options: self.options,
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

fn unit() -> impl Strategy<Value = (&'static str, u64)> {
    let units = UNITS.iter().flat_map(|(names, nanos)| {
        let names = names.split(' ');
        names.map(|name| (name, *nanos))
    });
    select(units.collect::<Vec<_>>())
}

fn time() -> impl Strategy<Value = Written<Duration>> {
    let count = prop_oneof![8 => 0..=60_u64, 1 => 0..=10_000_000_u64];
    (count, unit()).prop_map(|(count, (unit, nanos))| {
        let nanos = u128::from(count) * u128::from(nanos);
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let seconds = u64::try_from(seconds).expect("a time that fits");
        let nanos = u32::try_from(nanos).expect("less than a second");
        (Duration::new(seconds, nanos), format!("{count} {unit}"))
    })
}

/// What follows `per`.
fn period() -> impl Strategy<Value = Written<Duration>> {
    let one = unit().prop_map(|(unit, nanos)| (Duration::from_nanos(nanos), unit.into()));
    prop_oneof![one, time()]
}

fn token_bucket() -> impl Strategy<Value = Form> {
    let options = (option::of(number()), option::of(number()), any::<bool>());
    let name = select(vec!["", "token bucket of "]);
    (name, number(), period(), options).prop_map(|(name, limit, period, options)| {
        let (burst, initial, at_once) = options;
        let start = format!("{name}{} per {}", limit.1, period.1);
        Form::new(start, TokenBucket::new(limit.0, period.0))
            .set("burst", burst, TokenBucket::burst)
            .set("initial", initial, TokenBucket::initial)
            .flag("refill at once", at_once, TokenBucket::refill_at_once)
            .done()
    })
}

fn without_refill() -> impl Strategy<Value = Form> {
    let name = select(vec!["", "token bucket of "]);
    (name, number(), option::of(number())).prop_map(|(name, burst, initial)| {
        let start = format!("{name}{} without refill", burst.1);
        let form = Form::new(start, TokenBucket::without_refill(burst.0));
        form.set("initial", initial, TokenBucket::initial).done()
    })
}

fn leaky_bucket() -> impl Strategy<Value = Form> {
    let room = option::of((any::<bool>(), number()));
    (number(), period(), room).prop_map(|(limit, period, room)| {
        let start = format!("leaky bucket of {} per {}", limit.1, period.1);
        let form = Form::new(start, LeakyBucket::new(limit.0, period.0));
        let form = match room {
            Some((true, units)) => form.set("queue", Some(units), LeakyBucket::queue),
            Some((false, units)) => form.set("capacity", Some(units), LeakyBucket::capacity),
            None => form,
        };
        form.done()
    })
}

fn fixed_window() -> impl Strategy<Value = Form> {
    let flags = (any::<bool>(), any::<bool>());
    (number(), period(), flags).prop_map(|(limit, period, (is_aligned, is_spread))| {
        let start = format!("fixed window of {} per {}", limit.1, period.1);
        Form::new(start, FixedWindow::new(limit.0, period.0))
            .flag("aligned", is_aligned, FixedWindow::aligned)
            .flag("spread", is_spread, FixedWindow::spread)
            .done()
    })
}

fn calendar_window() -> impl Strategy<Value = Form> {
    type Window = fn(u64) -> FixedWindow;

    let periods: Vec<(Window, &str)> = vec![
        (FixedWindow::per_calendar_day, "calendar day"),
        (FixedWindow::per_calendar_week, "calendar week"),
        (FixedWindow::per_calendar_month, "calendar month"),
        (FixedWindow::per_calendar_month, "month"),
        (FixedWindow::per_calendar_month, "1 month"),
    ];
    let name = select(vec!["", "fixed window of "]);
    let all = (name, number(), select(periods), any::<bool>());
    all.prop_map(|(name, limit, (window, period), is_spread)| {
        let start = format!("{name}{} per {period}", limit.1);
        let form = Form::new(start, window(limit.0));
        form.flag("spread", is_spread, FixedWindow::spread).done()
    })
}

fn sliding() -> impl Strategy<Value = Form> {
    (number(), period(), option::of(option::of(number()))).prop_map(|(limit, period, log)| {
        let rate = format!("{} per {}", limit.1, period.1);
        let Some(entries) = log else {
            let window = SlidingWindow::new(limit.0, period.0);
            return Form::new(format!("sliding window of {rate}"), window).done();
        };
        let log = SlidingLog::new(limit.0, period.0);
        let form = Form::new(format!("sliding log of {rate}"), log);
        form.set("max entries", entries, SlidingLog::max_entries)
            .done()
    })
}

fn concurrency() -> impl Strategy<Value = Form> {
    let name = select(vec!["", "concurrency of "]);
    (name, number(), option::of(time())).prop_map(|(name, limit, lifetime)| {
        let start = format!("{name}{} at once", limit.1);
        let form = Form::new(start, Concurrency::new(limit.0));
        form.set("lifetime", lifetime, Concurrency::lifetime).done()
    })
}

fn penalty() -> impl Strategy<Value = Form> {
    let time = || option::of(time());
    let times = (time(), time(), time(), time());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (number(), times, flags).prop_map(|(strikes, times, (is_joined, is_one, prolongs))| {
        let (within, lasting, longest, peace) = times;
        let word = if is_one { "strike" } else { "strikes" };
        let start = format!("penalty after {} {word}", strikes.1);
        let mut form =
            Form::new(start, Penalty::after(strikes.0)).set("within", within, Penalty::within);
        if is_joined {
            // It needs no comma.
            let within = form.options.pop().into_iter();
            within.for_each(|text| form.start = format!("{} {text}", form.start));
        }
        form.set("lasting", lasting, Penalty::lasting)
            .set("doubling up to", longest, Penalty::doubling_up_to)
            .set("forgiven after", peace, Penalty::forgiven_after)
            .flag("prolonging", prolongs, Penalty::prolonging)
            .done()
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
        Just(Form::new("pause".to_owned(), Pause).done()),
    ]
}
