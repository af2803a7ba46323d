//! Fields of a form: `application/x-www-form-urlencoded`.

/// Returns the first field of this name. Bytes that are no text are replaced.
pub(crate) fn field(body: &[u8], name: &str) -> Option<String> {
    let mut pairs = body.split(|byte| *byte == b'&').map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = pair.split_at(equals.unwrap_or(pair.len()));
        (decoded(name), value.get(1..).unwrap_or_default())
    });
    let (_, value) = pairs.find(|(found, _)| found == name)?;
    Some(decoded(value))
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digits = after.split_first_chunk::<2>();
        match (first, digits.and_then(|(digits, _)| hexadecimal(*digits))) {
            (b'+', _) => bytes.push(b' '),
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = rest.get(2..).unwrap_or_default();
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hexadecimal(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_decoded() {
        let body = b"a=1&token=a%2Bb+c%C3%A9%zz%4&token=second&%74ext=x&empty&=no";
        let found = |name| field(body, name);
        assert_eq!(found("token").as_deref(), Some("a+b c\u{e9}%zz%4"));
        assert_eq!(found("text").as_deref(), Some("x"));
        assert_eq!(found("empty").as_deref(), Some(""));
        assert_eq!(found("").as_deref(), Some("no"));
        assert_eq!(found("absent"), None);
        assert_eq!(field(b"t=%ff%00", "t").as_deref(), Some("\u{fffd}\0"));
        assert_eq!(field(b"", "t"), None);
    }
}
