//! Conditions on header fields.

use http::{HeaderMap, HeaderName};

use super::Finding;

/// A condition on one header field.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCondition {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValueIs,
}

/// What the value of a header field is.
#[derive(Clone, Debug)]
pub(crate) enum HeaderValueIs {
    Present,
    /// One of these, without blanks around it.
    OneOf(Vec<String>),
}

impl HeaderCondition {
    /// If the field is sent several times and some of its values are meant, it is unclear.
    pub(super) fn find(&self, headers: &HeaderMap) -> Finding {
        let mut values = headers.get_all(&self.name).into_iter();
        let expected = match &self.value {
            HeaderValueIs::Present => return Some(values.next().is_some()),
            HeaderValueIs::OneOf(expected) => expected,
        };
        let mut findings = values.map(|value| {
            let value = value.as_bytes().trim_ascii();
            let is_meant = expected.iter().any(|text| text.as_bytes() == value);
            Some(is_meant)
        });
        let first = findings.next().unwrap_or(Some(false));
        match findings.all(|finding| finding == first) {
            true => first,
            false => None,
        }
    }
}
