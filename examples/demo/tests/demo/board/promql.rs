//! Reads the names in an expression of PromQL.

use std::collections::BTreeSet;

use super::export::Export;

const FUNCTIONS: [&str; 3] = ["rate", "increase", "histogram_quantile"];
const AGGREGATIONS: [&str; 4] = ["sum", "avg", "min", "max"];
/// The labels that Prometheus adds to what it scrapes.
const OF_THE_SCRAPE: [&str; 2] = ["job", "instance"];
/// The labels whose values users choose.
pub(super) const CHOSEN: [&str; 5] = ["job", "instance", "limiter", "policy", "store"];

/// One of `word`, `"text"`, `$variable`, `5m`, or signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Where it starts.
    pub(super) start: usize,
}

impl Token<'_> {
    pub(super) fn is_word(self) -> bool {
        self.text
            .starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
    }
}

/// Splits an expression into its tokens.
pub(super) fn tokens(expression: &str) -> Vec<Token<'_>> {
    let is_in_word = |char: char| char.is_ascii_alphanumeric() || "_:.".contains(char);
    let (mut tokens, mut start) = (Vec::new(), 0);
    while let Some(first) = expression[start..].chars().next() {
        let rest = &expression[start..];
        let behind_first = &rest[first.len_utf8()..];
        let len = match first {
            '"' => 2 + behind_first.find('"').expect("the end of a text"),
            _ if first == '$' || is_in_word(first) => {
                1 + behind_first
                    .find(|char| !is_in_word(char))
                    .unwrap_or(behind_first.len())
            }
            '=' | '!' | '<' | '>' => {
                1 + behind_first.find(|char| !"=~".contains(char)).unwrap_or(0)
            }
            _ => first.len_utf8(),
        };
        let text = &rest[..len];
        if !text.trim().is_empty() {
            tokens.push(Token { text, start });
        }
        start += len;
    }
    tokens
}

/// Reads an expression, and compares its names with what is exported.
struct Reader<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
    export: &'a Export,
    metrics: BTreeSet<&'a str>,
    /// The labels that `by` keeps.
    kept: BTreeSet<&'a str>,
    is_aggregated: bool,
    mistakes: Vec<String>,
}

/// Returns what an expression names and no export has. `shown`: the labels of the result that a
/// legend or a message names.
pub(super) fn mistakes(expression: &str, shown: &[&str], export: &Export) -> Vec<String> {
    let mut reader = Reader {
        tokens: tokens(expression).into_iter().peekable(),
        export,
        metrics: BTreeSet::new(),
        kept: BTreeSet::new(),
        is_aggregated: false,
        mistakes: Vec::new(),
    };
    reader.read();
    reader.check_labels(shown);
    reader.mistakes
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        while let Some(token) = self.tokens.next() {
            let is_call = self.tokens.peek().is_some_and(|next| next.text == "(");
            match token.text {
                "by" => self.read_by(),
                word if AGGREGATIONS.contains(&word) => self.is_aggregated = true,
                word if is_call && FUNCTIONS.contains(&word) => {}
                word if token.is_word() => self.read_selector(word),
                _ => {}
            }
        }
    }

    fn read_by(&mut self) {
        let inside = self.tokens.by_ref().take_while(|token| token.text != ")");
        self.kept.extend(
            inside
                .filter(|token| token.is_word())
                .map(|token| token.text),
        );
    }

    fn read_selector(&mut self, metric: &'a str) {
        let Some(labels) = self.export.labels_of(metric) else {
            self.mistakes.push(format!("no metric {metric}"));
            return;
        };
        self.metrics.insert(metric);
        if self.tokens.next_if(|next| next.text == "{").is_none() {
            return;
        }
        let inside: Vec<_> = self
            .tokens
            .by_ref()
            .take_while(|token| token.text != "}")
            .collect();
        for matcher in inside.split(|token| token.text == ",") {
            let [label, sign, value] = matcher else {
                panic!("no matcher: {matcher:?}");
            };
            assert!(["=", "=~", "!=", "!~"].contains(&sign.text), "{matcher:?}");
            let (label, value) = (label.text, value.text.trim_matches('"'));
            if OF_THE_SCRAPE.contains(&label) {
                continue;
            }
            let Some(known) = labels.get(label) else {
                self.mistakes.push(format!("no label {label} of {metric}"));
                continue;
            };
            let unknown = value.split('|').filter(|value| !known.contains(*value));
            if !CHOSEN.contains(&label) {
                let mistake = |value| format!("no {label} {value:?} of {metric}");
                self.mistakes.extend(unknown.map(mistake));
            }
        }
    }

    /// Looks for the labels that `by` keeps, and for those that are shown.
    fn check_labels(&mut self, shown: &[&str]) {
        let of_each_metric = |label: &str| {
            let is_of = |metric: &&str| {
                let labels = self.export.labels_of(metric);
                labels.is_some_and(|labels| labels.contains_key(label))
            };
            OF_THE_SCRAPE.contains(&label) || self.metrics.iter().all(is_of)
        };
        let lost = self.kept.iter().filter(|label| !of_each_metric(label));
        let lost: Vec<_> = lost
            .map(|label| format!("no label {label} to keep"))
            .collect();
        let is_shown = |label: &str| match self.is_aggregated {
            true => self.kept.contains(label),
            false => of_each_metric(label),
        };
        let hidden = shown.iter().filter(|label| !is_shown(label));
        let hidden: Vec<_> = hidden
            .map(|label| format!("no label {label} to show"))
            .collect();
        self.mistakes.extend(lost);
        self.mistakes.extend(hidden);
    }
}
