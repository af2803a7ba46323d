//! Cards, and tables in them.

use maud::{Markup, html};

/// Returns a card with a heading. `note`: what to know of what is in it.
pub(super) fn card(id: &str, title: &str, note: &Markup, content: &Markup) -> Markup {
    html! {
        section.card aria-labelledby={ (id) "-title" } {
            div.heading {
                h2 id={ (id) "-title" } { (title) }
                p.note id={ (id) "-note" } data-part { (note) }
            }
            (content)
        }
    }
}

/// A card with a table. The script renews its rows.
#[derive(Default)]
pub(super) struct Table<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) note: Markup,
    /// The names of its columns. `#` before one: of numbers. `*` at its end: filled by the script.
    pub(super) columns: &'a [&'a str],
    /// Whether it scrolls on its own, and keeps still while the pointer is on it.
    pub(super) is_list: bool,
    /// Its text if there are no rows.
    pub(super) none: &'a str,
    pub(super) rows: Vec<Markup>,
}

impl Table<'_> {
    /// Returns the card. `below`: what is in it below the table.
    pub(super) fn render(&self, below: &Markup) -> Markup {
        let label = (!self.is_list).then(|| format!("{}-title", self.id));
        let table = html! {
            div.scroll.tall[self.is_list] tabindex=[label.as_ref().map(|_| 0)] role=[label.as_ref().map(|_| "region")]
                aria-labelledby=[&label] {
                table id=(self.id) {
                    thead { tr { @for name in self.columns { (heading(name)) } } }
                    tbody id={ (self.id) "-part" } data-part data-still[self.is_list] {
                        @if self.rows.is_empty() { tr.none { td colspan=(self.columns.len()) { (self.none) } } }
                        @for row in &self.rows { (row) }
                    }
                }
            }
            (below)
        };
        card(self.id, self.title, &self.note, &table)
    }
}

fn heading(column: &str) -> Markup {
    let (is_number, is_scripted) = (column.starts_with('#'), column.ends_with('*'));
    let name = column.trim_matches(['#', '*']);
    html! { th.number[is_number].scripted[is_scripted] scope="col" { (name) } }
}
