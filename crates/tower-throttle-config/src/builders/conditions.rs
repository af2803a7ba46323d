//! Tables `when`: conditions on requests.

use http::HeaderName;

use super::reading::Reading;
use crate::{
    field::Field,
    matching::{
        Condition, HeaderCondition, HeaderValueIs, HostPattern, Matcher, PathPattern, parse_method,
    },
    problem::Code,
};
use tower_throttle::key::{self, KeyExtractor};

/// Reads a table of conditions. Those that cost least come first, and closures last.
pub(super) fn read(reading: &mut Reading<'_>, table: &Field<'_>) -> Matcher {
    let mut conditions = Vec::new();
    let methods = each(reading, table, "method", parse_method);
    conditions.extend(methods.map(Condition::Method));
    let mut headers: Vec<HeaderCondition> = Vec::new();
    for (name, field) in table.get("header").iter().flat_map(Field::entries) {
        let Some(new) = header(reading, name, &field) else {
            continue;
        };
        if headers.iter().any(|other| other.name == new.name) {
            let message =
                format!("{name:?} is there twice, as the case of a name does not matter; keep one");
            reading.report(&field, Code::DuplicateField, message);
        }
        headers.push(new);
    }
    conditions.extend(headers.into_iter().map(Condition::Header));
    let hosts = each(reading, table, "host", HostPattern::parse);
    conditions.extend(hosts.map(Condition::Host));
    let paths = each(reading, table, "path", PathPattern::parse);
    conditions.extend(paths.map(Condition::Path));
    conditions.extend(routes(reading, table));
    if let Some(inner) = table.get("not") {
        conditions.push(Condition::Not(read(reading, &inner)));
    }
    let registered = &reading.readers.when;
    let reader = reading.named(table.get("reader").as_ref(), registered, "when");
    conditions.extend(reader.cloned().map(Condition::Reader));
    Matcher(conditions)
}

/// Reads each text of a field, and reports those that are wrong.
fn each<T>(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<T>> {
    let mut values = Vec::new();
    for item in table.get(name)?.items() {
        match parse(item.text()?) {
            Ok(value) => values.push(value),
            Err(message) => reading.report(&item, Code::BadPattern, message),
        }
    }
    Some(values)
}

fn header(reading: &mut Reading<'_>, name: &str, field: &Field<'_>) -> Option<HeaderCondition> {
    let parsed = name.parse::<HeaderName>();
    // An extractor reports a wrong name.
    reading.keep(field, key::header(name).validate())?;
    let name = parsed.ok()?;
    if name == http::header::HOST {
        let message = "a request over HTTP/2 has no field `host`; use the condition `host`";
        reading.report(field, Code::BadPattern, message.to_owned());
        return None;
    }
    let items = field.items();
    let texts = items.iter().filter_map(Field::text);
    let texts: Vec<_> = texts.map(str::to_owned).collect();
    Some(HeaderCondition {
        name,
        value: match texts.is_empty() {
            true => HeaderValueIs::Present,
            false => HeaderValueIs::OneOf(texts),
        },
    })
}

#[cfg(feature = "axum")]
fn routes(reading: &mut Reading<'_>, table: &Field<'_>) -> Option<Condition> {
    use crate::matching::{Routes, parse_route};

    let routes = each(reading, table, "route", parse_route)?;
    Some(Condition::Route(Routes::new(routes)))
}

#[cfg(not(feature = "axum"))]
fn routes(reading: &mut Reading<'_>, table: &Field<'_>) -> Option<Condition> {
    reading.report_feature(&table.get("route")?, "`route`", "axum");
    None
}
