//! A text as words, whole numbers and commas.

use std::{fmt, ops::Range};

use super::{Mistake, quoted};

/// The rest of a text. A copy looks ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'t> {
    text: &'t str,
    /// Where the rest starts.
    at: usize,
}

/// A word, a number, or any other character. Empty at the end of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'t> {
    pub(crate) text: &'t str,
    start: usize,
}

impl<'t> Words<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next piece, and leaves it there.
    pub(crate) fn peek(&self) -> Piece<'t> {
        let mut ahead = *self;
        ahead.next_piece()
    }

    /// Takes the next piece.
    pub(crate) fn next_piece(&mut self) -> Piece<'t> {
        self.skip_space();
        let (start, rest) = (self.at, self.rest());
        let length = match rest.chars().next() {
            None => 0,
            Some('0'..='9') => number_length(rest),
            Some(first) if first.is_alphabetic() => length_while(rest, char::is_alphabetic),
            Some(other) => other.len_utf8(),
        };
        self.at += length;
        Piece {
            text: rest.get(..length).unwrap_or_default(),
            start,
        }
    }

    /// Takes these words, separated by spaces, if they come next.
    pub(crate) fn take(&mut self, words: &str) -> bool {
        let mut ahead = *self;
        let are_next = words.split(' ').all(|word| ahead.next_piece().is(word));
        if are_next {
            *self = ahead;
        }
        are_next
    }

    /// Takes all words up to the next piece that is none, or is one of `ends`. Returns them in
    /// lower case, each after one space, and where they are.
    pub(crate) fn take_words(&mut self, ends: &[&str]) -> (String, Range<usize>) {
        let (mut name, mut range) = (String::new(), self.peek().range());
        loop {
            let piece = self.peek();
            if !piece.is_word() || ends.iter().any(|end| piece.is(end)) {
                return (name, range);
            }
            if !name.is_empty() {
                name.push(' ');
            }
            name.push_str(&piece.text.to_lowercase());
            range.end = piece.range().end;
            self.next_piece();
        }
    }

    /// Takes a whole number.
    pub(crate) fn number(&mut self) -> Result<u64, Mistake> {
        let piece = self.next_piece();
        let wrong = |reason: String| Mistake::new(piece.range(), reason);
        if piece.is_end() {
            return Err(wrong(
                "a number is missing at the end; write one".to_owned(),
            ));
        }
        if !piece.is_number() || piece.text.contains('.') {
            let example = "write it in digits, as in \"10\" or \"1_000\"";
            return Err(wrong(format!("{piece} is no whole number; {example}")));
        }
        let digits = piece.text.replace('_', "");
        let too_large = |_| wrong(format!("{piece} is too large; use a number below 2^64"));
        digits.parse().map_err(too_large)
    }

    /// Returns an error if anything is left.
    pub(crate) fn end(&self) -> Result<(), Mistake> {
        let piece = self.peek();
        match piece.is_end() {
            true => Ok(()),
            false => Err(Mistake::new(
                piece.range(),
                format!("{piece} is too much; drop it"),
            )),
        }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips space, and the `_` or `-` between two letters: `refill_at_once` is three words.
    fn skip_space(&mut self) {
        while let Some(next) = self.rest().chars().next() {
            let is_joint = matches!(next, '_' | '-') && {
                let before = self.text.get(..self.at).and_then(|it| it.chars().last());
                let after = self.rest().chars().nth(1);
                before.is_some_and(char::is_alphabetic) && after.is_some_and(char::is_alphabetic)
            };
            if !next.is_whitespace() && !is_joint {
                return;
            }
            self.at += next.len_utf8();
        }
    }
}

impl Piece<'_> {
    /// Returns the bytes of the text where it is.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Returns whether the text ended before it.
    pub(crate) const fn is_end(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns whether it is this word, in upper or lower case.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(char::is_alphabetic)
    }

    pub(crate) fn is_number(&self) -> bool {
        self.text.starts_with(|first: char| first.is_ascii_digit())
    }
}

/// In quotes, for a message; `nothing` at the end of the text.
impl fmt::Display for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_end() {
            true => f.write_str("nothing"),
            false => f.write_str(&quoted(self.text)),
        }
    }
}

fn length_while(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|next| !is_part(next)).unwrap_or(text.len())
}

/// Returns the length of a number, with a fraction if it has one: that is wrong as a whole.
fn number_length(text: &str) -> usize {
    let is_part = |next: char| next.is_ascii_digit() || next == '_';
    let length = length_while(text, is_part);
    match text.get(length..).and_then(|rest| rest.strip_prefix('.')) {
        Some(fraction) if fraction.starts_with(|next: char| next.is_ascii_digit()) => {
            length + 1 + length_while(fraction, is_part)
        }
        _ => length,
    }
}
