//! Tables `when`: conditions on requests.

use http::HeaderName;

use super::reading::{Reading, field, reader};
use crate::{
    matching::{Condition, HeaderCondition, HostPattern, Matcher, PathPattern, parse_method},
    place::FilePlace,
    tables::{HeaderValue, Texts, When},
};
use tower_throttle::key::{self, KeyExtractor};

/// Reads a table of conditions. Those that cost least come first, and closures last.
pub(super) fn read(reading: &mut Reading<'_>, at: &FilePlace, table: &When) -> Matcher {
    let mut conditions = Vec::new();
    let methods = each(reading, field!(at, table, method), parse_method);
    conditions.extend(methods.map(Condition::Method));
    let mut headers: Vec<HeaderCondition> = Vec::new();
    for (name, value) in table.header.iter().flatten() {
        let at = at.to("header").to(&name);
        let Some(new) = header(reading, &at, name, value) else {
            continue;
        };
        if headers.iter().any(|other| other.name == new.name) {
            let message =
                format!("{name:?} is there twice, as the case of a name does not matter; keep one");
            reading.report(&at, "duplicate-field", message);
        }
        headers.push(new);
    }
    conditions.extend(headers.into_iter().map(Condition::Header));
    let hosts = each(reading, field!(at, table, host), HostPattern::parse);
    conditions.extend(hosts.map(Condition::Host));
    let paths = each(reading, field!(at, table, path), PathPattern::parse);
    conditions.extend(paths.map(Condition::Path));
    conditions.extend(routes(reading, field!(at, table, route)));
    if let Some(inner) = &table.not {
        conditions.push(Condition::Not(read(reading, &at.to("not"), inner)));
    }
    let reader = reader!(reading, at, table, reader, when);
    conditions.extend(reader.map(Condition::Reader));
    Matcher(conditions)
}

/// Reads each text of a field, and reports those that are wrong.
fn each<T>(
    reading: &mut Reading<'_>,
    (at, texts): (&FilePlace, Option<&Texts>),
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<T>> {
    let mut values = Vec::new();
    for (at, text) in texts?.all(at) {
        match parse(text) {
            Ok(value) => values.push(value),
            Err(message) => reading.report(&at, "bad-pattern", message),
        }
    }
    Some(values)
}

fn header(
    reading: &mut Reading<'_>,
    at: &FilePlace,
    name: &str,
    value: &HeaderValue,
) -> Option<HeaderCondition> {
    let parsed = name.parse::<HeaderName>();
    // An extractor reports a wrong name.
    reading.keep(at, key::header(name).validate())?;
    let name = parsed.ok()?;
    if name == http::header::HOST {
        let message = "a request over HTTP/2 has no field `host`; use the condition `host`";
        reading.report(at, "bad-pattern", message);
        return None;
    }
    let values = match value {
        HeaderValue::Any(_) => None,
        HeaderValue::OneOf(texts) => {
            let texts = texts.all(at).into_iter();
            Some(texts.map(|(_, text)| text.to_owned()).collect())
        }
    };
    Some(HeaderCondition { name, values })
}

#[cfg(feature = "axum")]
fn routes(
    reading: &mut Reading<'_>,
    (at, texts): (&FilePlace, Option<&Texts>),
) -> Option<Condition> {
    use crate::matching::{Routes, parse_route};

    let routes = each(reading, (at, texts), parse_route)?;
    Some(Condition::Route(Routes::new(routes)))
}

#[cfg(not(feature = "axum"))]
fn routes(
    reading: &mut Reading<'_>,
    (at, texts): (&FilePlace, Option<&Texts>),
) -> Option<Condition> {
    texts?;
    reading.report_feature(at, "`route`", "axum");
    None
}
