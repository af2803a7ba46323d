//! Patterns of paths.
//!
//! A path is compared segment by segment, without its query. A trailing slash does not matter.
//! Segments are compared with their case, after percent-decoding.
//!
//! A path that servers could read as another one is unclear: it has an empty
//! segment or one that ends with a dot, a backslash, a semicolon or a control character, or it encodes
//! a character that needs no encoding, a slash, a blank, `?`, `#` or a percent sign, or it is not UTF-8.

use std::borrow::Cow;

use super::Finding;

/// A pattern of paths: `*` is any one segment, `**` is any number of segments, even none.
#[derive(Clone, Debug)]
pub(crate) struct PathPattern(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(Box<str>),
    Any,
    AnyNumber,
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub(crate) fn parse(pattern: &str) -> Result<Self, String> {
        if !pattern.starts_with('/') {
            return Err(format!(
                "path {pattern:?} does not begin with a slash; write \"/{pattern}\""
            ));
        }
        if pattern.contains(['?', '#']) {
            return Err(format!(
                "path {pattern:?} has a query, which is not compared; leave it out"
            ));
        }
        let path = read(pattern).ok_or_else(|| {
            format!(
                "path {pattern:?} can be read in more than one way, and such requests are not compared; \
                 write it without blanks, empty segments, `;`, segments that end with a dot, and needless \
                 percent-encoding"
            )
        })?;
        let segments = segments(&path).map(|segment| match segment {
            "*" => Ok(Segment::Any),
            "**" => Ok(Segment::AnyNumber),
            text if text.contains('*') => Err(format!(
                "path {pattern:?}: `*` is a whole segment, and {text:?} is not; write `*` or `**` in its place"
            )),
            text => Ok(Segment::Text(text.into())),
        });
        segments.collect::<Result<_, _>>().map(Self)
    }

    /// Compares, in time proportional to the length of the path and the number of segments of the
    /// pattern: only the last `**` is tried again.
    fn matches(&self, path: &str) -> bool {
        let (mut pattern, mut rest, mut retry) = (self.0.as_slice(), segments(path), None);
        loop {
            let here = rest.clone();
            match (pattern.split_first(), rest.next()) {
                (None, None) => return true,
                (Some((Segment::AnyNumber, after)), _) => {
                    retry = Some((after, here.clone()));
                    (pattern, rest) = (after, here);
                    continue;
                }
                (Some((segment, after)), Some(first)) if segment.is(first) => {
                    pattern = after;
                    continue;
                }
                _ => {}
            }
            // `**` takes one segment more.
            let Some((after, from)) = &mut retry else {
                return false;
            };
            if from.next().is_none() {
                return false;
            }
            (pattern, rest) = (after, from.clone());
        }
    }
}

impl Segment {
    fn is(&self, segment: &str) -> bool {
        match self {
            Self::Text(text) => **text == *segment,
            Self::Any => true,
            Self::AnyNumber => false,
        }
    }
}

/// Returns whether one of the patterns matches.
pub(super) fn find(patterns: &[PathPattern], path: &str) -> Finding {
    let path = read(path)?;
    Some(patterns.iter().any(|pattern| pattern.matches(&path)))
}

/// Returns the segments of a path that was [read](read).
fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns a path percent-decoded, without the slashes around it. `None` if it could be understood in
/// several ways.
fn read(path: &str) -> Option<Cow<'_, str>> {
    let inner = path.strip_prefix('/')?;
    if inner.is_empty() {
        return Some(inner.into());
    }
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    // Some file systems leave out a final dot.
    let is_odd = |segment: &str| segment.is_empty() || segment.ends_with('.');
    if inner.split('/').any(is_odd) {
        return None;
    }
    if inner.bytes().all(|byte| byte != b'%' && is_clear(byte)) {
        return Some(inner.into());
    }
    let (mut decoded, mut bytes) = (Vec::new(), inner.bytes());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let byte = u8::try_from(digit()? << 4 | digit()?).ok()?;
                Some(byte).filter(|byte| needs_encoding(*byte))?
            }
            byte => byte,
        };
        decoded.push(Some(byte).filter(|byte| is_clear(*byte))?);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// Returns whether all servers read this character in the same way: some take a backslash for a
/// slash, and cut a segment at a semicolon. A proxy that decodes a path before it sends it on makes
/// a blank the end of the path.
const fn is_clear(byte: u8) -> bool {
    !byte.is_ascii_control() && !matches!(byte, b'\\' | b';' | b' ')
}

/// Returns whether a path can hold this character only in its encoding (RFC 3986, `pchar`). An
/// encoded slash, percent sign, question mark or number sign is read in more than one way.
const fn needs_encoding(byte: u8) -> bool {
    !matches!(
        byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&'
            | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'/' | b'%' | b'?' | b'#'
    )
}
