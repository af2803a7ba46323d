//! Conditions on header fields.

use http::{HeaderMap, HeaderName};

use super::Finding;

/// A condition on one header field.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCondition {
    pub(crate) name: HeaderName,
    /// One of these, without blanks around it. `None`: any.
    pub(crate) values: Option<Vec<String>>,
}

impl HeaderCondition {
    /// If the field is sent several times and some of its values are meant, it is unclear.
    pub(super) fn find(&self, headers: &HeaderMap) -> Finding {
        let mut values = headers.get_all(&self.name).into_iter();
        let Some(expected) = &self.values else {
            return Some(values.next().is_some());
        };
        let mut findings = values.map(|value| {
            let value = value.as_bytes().trim_ascii();
            Some(expected.iter().any(|text| text.as_bytes() == value))
        });
        let first = findings.next().unwrap_or(Some(false));
        match findings.all(|finding| finding == first) {
            true => first,
            false => None,
        }
    }
}
