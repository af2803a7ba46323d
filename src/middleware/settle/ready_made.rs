//! The usual settlers.

use http::{HeaderName, HeaderValue, StatusCode};

use super::{
    Settler,
    outcome::{GRPC_STATUS, Outcome, Settle},
};
use crate::ConfigError;

/// Charges requests that fail; the others cost nothing.
///
/// A failure is a status of 400 or above, and a gRPC status other than 0. One that is not a number
/// is a failure, too; it is [counted](crate::metrics::Unread::cost), and logged once. A request without a
/// response counts as one, so a client cannot avoid the limit by hanging up. The gRPC status is
/// usually in the trailers, and then the body must arrive: a call whose body is dropped counts.
/// Under a [`Penalty`](crate::Penalty), neither is a strike.
///
/// Under a [cost](crate::Policy::cost) of 0, a failure costs one unit.
#[must_use]
pub const fn failures() -> impl Settler + Copy {
    charge_failure
}

fn charge_failure(outcome: &Outcome<'_>) -> Settle {
    if outcome.is_denied_within() {
        return Settle::Release;
    }
    let Some(status) = outcome.status() else {
        return charge(outcome);
    };
    let is_failure = status.is_client_error() || status.is_server_error();
    match outcome.grpc_status() {
        _ if is_failure => charge(outcome),
        Some(0) => Settle::Release,
        Some(_) => charge(outcome),
        None if outcome.grpc_status_field().is_some() => {
            outcome.report_unread(&GRPC_STATUS);
            charge(outcome)
        }
        None if !outcome.is_grpc() => Settle::Release,
        None if outcome.is_end() => charge(outcome),
        None => Settle::AtEnd,
    }
}

/// Charges requests whose response has one of these statuses; the others cost nothing.
///
/// A request without a response counts, except under a [`Penalty`](crate::Penalty). Under a
/// [cost](crate::Policy::cost) of 0, a request that counts costs one unit.
///
/// A status outside 100 to 999, or no status at all, is an error when the layer is built.
#[must_use]
pub fn status(statuses: impl IntoIterator<Item = u16>) -> impl Settler + Clone {
    let statuses: Vec<u16> = statuses.into_iter().collect();
    let mut unknown = statuses.iter().filter(|code| !(100..1_000).contains(*code));
    let checked = match unknown.next() {
        Some(code) => Err(ConfigError::new(
            "status-out-of-range",
            format!("{code} is not an HTTP status; use 100 to 999"),
        )),
        None if statuses.is_empty() => Err(ConfigError::zero("settle::status")),
        None => Ok(()),
    };
    let settle = move |outcome: &Outcome<'_>| {
        let counts = |status: StatusCode| statuses.contains(&status.as_u16());
        match outcome.status().is_none_or(counts) {
            true => charge(outcome),
            false => Settle::Release,
        }
    };
    Checked { checked, settle }
}

/// A closure, with the error of its settings.
#[derive(Clone)]
struct Checked<F> {
    checked: Result<(), ConfigError>,
    settle: F,
}

impl<F: Fn(&Outcome<'_>) -> Settle + Send + Sync + 'static> Settler for Checked<F> {
    fn settle(&self, outcome: &Outcome<'_>) -> Settle {
        (self.settle)(outcome)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.checked.clone()
    }
}

/// Charges the number of units in a header field of the response, and removes that field.
///
/// The value is a whole number of up to 20 digits. If the response lacks the field, or has two of
/// them or another value, all held units are charged. The same is true without a response.
/// What cannot be read is [counted](crate::metrics::Unread::cost), and logged once for each policy.
///
/// The field is removed from every response that the layer forwards, even if the policy does not
/// apply. [`pass_on`](CostHeader::pass_on) lets clients see it.
#[must_use]
pub fn header(name: &str) -> CostHeader {
    CostHeader {
        name: name.parse().map_err(|_| ConfigError::header_name(name)),
        is_hidden: true,
    }
}

/// Made by [`header`].
#[derive(Clone, Debug)]
pub struct CostHeader {
    name: Result<HeaderName, ConfigError>,
    is_hidden: bool,
}

impl CostHeader {
    /// Leaves the field in the response.
    #[must_use]
    pub fn pass_on(mut self) -> Self {
        self.is_hidden = false;
        self
    }
}

impl Settler for CostHeader {
    fn settle(&self, outcome: &Outcome<'_>) -> Settle {
        let (Ok(name), false) = (&self.name, outcome.is_denied_within()) else {
            return Settle::Release;
        };
        let mut values = outcome.headers().get_all(name).iter();
        let units = match (values.next(), values.next()) {
            (None, _) => return Settle::Full,
            (Some(value), None) => whole_number(value),
            (Some(_), Some(_)) => None,
        };
        let Some(units) = units else {
            outcome.report_unread(name);
            return Settle::Full;
        };
        Settle::Units(units)
    }

    fn hidden_field(&self) -> Option<&HeaderName> {
        self.name.as_ref().ok().filter(|_| self.is_hidden)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.name.clone().map(drop)
    }
}

/// Parses digits only: `str::parse` takes a plus sign, too.
fn whole_number(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Charges a unit for each `bytes_per_unit` bytes of the body, rounded up, when the body has
/// ended or was dropped.
///
/// It counts the bytes that were passed on to the server, which has buffers of its own. Without a
/// response, all held units are charged. Data on a connection after an upgrade (a WebSocket) is not
/// part of the body.
///
/// 0 is an error when the layer is built.
#[must_use]
pub fn body_bytes(bytes_per_unit: u64) -> impl Settler + Clone {
    let checked = match bytes_per_unit {
        0 => Err(ConfigError::zero("settle::body_bytes")),
        _ => Ok(()),
    };
    let settle = move |outcome: &Outcome<'_>| match outcome.status() {
        _ if outcome.is_denied_within() => Settle::Release,
        None => Settle::Full,
        Some(_) if !outcome.is_end() => Settle::AtEnd,
        Some(_) => Settle::Units(outcome.body_bytes().div_ceil(bytes_per_unit.max(1))),
    };
    Checked { checked, settle }
}

/// Charges what is held, and one unit if that is nothing.
const fn charge(outcome: &Outcome<'_>) -> Settle {
    match outcome.held() {
        0 => Settle::Units(1),
        _ => Settle::Full,
    }
}
