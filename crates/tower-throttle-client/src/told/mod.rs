//! What the response of a partner says about further calls.
//!
//! [`Told::read`] decides once what is a refusal, for pauses, repetitions and their budget. Each value is
//! one that a partner may get wrong. What cannot be read counts as not said, and is reported.

mod dialects;
mod grpc;
mod number;
#[cfg(test)]
mod tests;
mod time;
mod windows;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header::DATE};

pub(crate) use self::dialects::Dialects;
use self::dialects::Form;
pub use self::dialects::{Dialect, TimeUnit};

/// A call came too early, or too often: what [`RetryRefused`](crate::RetryRefused) finds in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It may succeed after a wait.
    ForNow,
    /// No wait makes it succeed.
    ForGood,
}

/// What a response says.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) refusal: Option<Refusal>,
    /// How long the partner wants no further calls, and the name of the limit that it means.
    pub(crate) pauses: Vec<(Option<String>, Duration)>,
    /// The fields that cannot be read.
    pub(crate) unread: Vec<HeaderName>,
}

impl Told {
    /// Reads a response. `None` if it says nothing of limits.
    ///
    /// If the partner refuses the call, its time is, in this order: that of the refusal
    /// (`Retry-After`, or gRPC's), the end of the windows that are used up, or `default`. If it does not
    /// refuse, calls pause until the end of the windows that are used up.
    pub(crate) fn read(
        status: StatusCode,
        headers: &HeaderMap,
        dialects: &Dialects,
        default: Duration,
    ) -> Option<Self> {
        let is_429 = status == StatusCode::TOO_MANY_REQUESTS;
        if !is_429 && !headers.keys().any(|field| dialects.may_have(field)) {
            return None;
        }
        let mut reader = Reader::new(headers);
        let grpc = grpc::read(&mut reader);
        let wait = reader.wait(dialects).or(grpc.delay);
        let scope = reader.scope(dialects);
        let mut used_up: Vec<_> = windows::read(&mut reader, dialects)
            .into_iter()
            .filter(|window| window.remaining == 0 && !window.reset.is_zero())
            .map(|window| (window.name.or_else(|| scope.clone()), window.reset))
            .collect();
        let is_refused = match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            // GitHub refuses so. With another status, the last call that a window admits has failed.
            StatusCode::FORBIDDEN if !used_up.is_empty() => true,
            _ if status.is_client_error() || status.is_server_error() => wait.is_some(),
            _ => grpc.is_exhausted || grpc.is_unavailable && wait.is_some(),
        };
        let is_final = grpc.is_final || reader.is_final(dialects);
        if is_refused && (wait.is_some() || used_up.is_empty()) {
            // It is about the window that lasts longest.
            let longest = used_up.into_iter().max_by_key(|(_, reset)| *reset);
            let name = longest.map_or(scope, |(name, _)| name);
            used_up = vec![(name, wait.unwrap_or(default))];
        }
        let refusal = match is_final {
            true => Refusal::ForGood,
            false => Refusal::ForNow,
        };
        Some(Self {
            refusal: is_refused.then_some(refusal),
            pauses: used_up,
            unread: reader.unread,
        })
    }
}

/// Reads the fields of a response, and remembers those that cannot be read.
struct Reader<'a> {
    headers: &'a HeaderMap,
    now: SystemTime,
    unread: Vec<HeaderName>,
}

impl<'a> Reader<'a> {
    fn new(headers: &'a HeaderMap) -> Self {
        let mut reader = Self {
            headers,
            now: SystemTime::now(),
            unread: Vec::new(),
        };
        // The partner's own clock, if it is known: that of this machine may differ.
        if let Some(date) = reader.values(&DATE, time::date).first() {
            reader.now = *date;
        }
        reader
    }

    fn cannot_read(&mut self, field: &HeaderName) {
        if !self.unread.contains(field) {
            self.unread.push(field.clone());
        }
    }

    /// Returns the lines of a field that are text.
    fn lines(&mut self, field: &HeaderName) -> Vec<&'a str> {
        let mut lines = Vec::new();
        for value in self.headers.get_all(field) {
            match value.to_str() {
                Ok(text) => lines.push(text.trim()),
                Err(_) => self.cannot_read(field),
            }
        }
        lines
    }

    /// Returns the values of a field. A line may have several: some partners state all their windows in
    /// one, and proxies join lines.
    fn values<T>(&mut self, field: &HeaderName, read: impl Fn(&'a str) -> Option<T>) -> Vec<T> {
        let mut values = Vec::new();
        for line in self.lines(field) {
            let parts = || line.split(',').map(|part| read(part.trim()));
            match read(line)
                .map(|value| vec![value])
                .or_else(|| parts().collect())
            {
                Some(read) => values.extend(read),
                None => self.cannot_read(field),
            }
        }
        values
    }

    fn times(&mut self, field: &HeaderName, unit: TimeUnit) -> Vec<Duration> {
        let now = self.now;
        self.values(field, |text| time::until(text, unit, now))
    }

    /// Returns how long to wait after a refusal. Of one field the longest time counts, and of several
    /// fields the first. Zero counts as not said: some services send it in all responses.
    fn wait(&mut self, dialects: &Dialects) -> Option<Duration> {
        dialects.all().find_map(|dialect| match &dialect.0 {
            Form::Wait(field, unit) => {
                let wait = self.times(field, *unit).into_iter().max();
                wait.filter(|wait| !wait.is_zero())
            }
            _ => None,
        })
    }

    fn is_final(&mut self, dialects: &Dialects) -> bool {
        dialects.all().any(|dialect| match &dialect.0 {
            Form::ShouldRetry(field) => {
                let may_retry = self.values(field, |text| text.to_ascii_lowercase().parse().ok());
                may_retry.contains(&false)
            }
            _ => false,
        })
    }

    fn scope(&mut self, dialects: &Dialects) -> Option<String> {
        dialects.all().find_map(|dialect| match &dialect.0 {
            Form::Scope(field) => self.lines(field).first().map(|&name| name.to_owned()),
            _ => None,
        })
    }
}
