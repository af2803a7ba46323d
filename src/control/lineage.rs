//! Which documents are versions of one, and which were made anew after a loss.

use crate::util::random::random;

/// A document that has been merged more often forgets its oldest lineages.
const MOST: usize = 8;

/// Random numbers that all later versions of a document keep.
///
/// A document that is made from nothing has one of its own. One that was merged has those of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lineages(Vec<u64>);

impl Lineages {
    /// Returns these, or a new one if there is none.
    pub(super) fn or_new(&self) -> Self {
        match self.0.is_empty() {
            true => Self(vec![random()]),
            false => self.clone(),
        }
    }

    pub(super) fn is_related(&self, other: &Self) -> bool {
        self.0.iter().any(|lineage| other.0.contains(lineage))
    }

    /// Returns those of both. Those of `self` are forgotten last.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let others = other.0.iter().filter(|lineage| !self.0.contains(lineage));
        Self(self.0.iter().chain(others).take(MOST).copied().collect())
    }

    pub(super) fn texts(&self) -> Vec<String> {
        let texts = self.0.iter().map(|lineage| format!("{lineage:016x}"));
        texts.collect()
    }

    /// Reads what [`texts`](Self::texts) returned.
    pub(super) fn read(texts: &[String]) -> Result<Self, String> {
        if !(1..=MOST).contains(&texts.len()) {
            let count = texts.len();
            return Err(format!(
                "it has {count} lineages; a document has 1 to {MOST}"
            ));
        }
        let number = |text: &String| {
            let is_hexadecimal =
                text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u64::from_str_radix(text, 16).ok();
            let number = number.filter(|_| is_hexadecimal);
            number.ok_or_else(|| format!("{text:?} is no lineage of 16 hexadecimal digits"))
        };
        texts.iter().map(number).collect::<Result<_, _>>().map(Self)
    }
}
