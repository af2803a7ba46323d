//! The reference in `docs/configuration-reference.md` is made from the descriptor.

use std::{env, fmt::Write, fs, path::Path};

use crate::{
    descriptor::FILE,
    form::{Form, Known, Need, Table, in_words},
    tests::repository,
};

const PAGE: &str = "docs/configuration-reference.md";
const START: &str = "<!-- The reference: made from src/config/descriptor -->\n";
const END: &str = "<!-- The end of the reference -->\n";

#[test]
fn the_reference_in_the_documentation_is_the_one_of_the_code() {
    let Some(page) = repository::read(PAGE) else {
        return;
    };
    let (before, rest) = page.split_once(START).expect("a start");
    let (written, after) = rest.split_once(END).expect("an end");
    let mut reference = Reference::default();
    reference.table("The file", &FILE);
    if env::var_os("TT_WRITE").is_some() {
        let page = [before, START, &reference.text, END, after].concat();
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(PAGE);
        fs::write(path, page).expect("the page");
    } else {
        assert!(
            written == reference.text,
            "with TT_WRITE=1, the page has the reference of the code"
        );
    }
}

#[derive(Default)]
struct Reference {
    text: String,
    seen: Vec<&'static str>,
}

impl Reference {
    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a text takes all");
    }

    fn table(&mut self, title: &str, table: &'static Table) {
        if self.seen.contains(&table.name) {
            return;
        }
        self.seen.push(table.name);
        self.line(&format!("\n## {title}\n\n{}\n", table.about));
        self.line("| field | what it says | value | default | in code |");
        self.line("|---|---|---|---|---|");
        for known in table.fields {
            let row = format!(
                "| `{}` | {} | {} | {} | {} |",
                known.name,
                known.about,
                value(known.form),
                default(known),
                in_code(known)
            );
            self.line(&row);
        }
        let words = table
            .fields
            .iter()
            .filter(|known| !words(known.form).is_empty());
        if words.clone().next().is_some() {
            self.line("\n| field | word | what it means |\n|---|---|---|");
            for known in words {
                for word in words_of(known) {
                    self.line(&word);
                }
            }
        }
        for known in table.fields {
            self.inner(title, known, known.form);
        }
    }

    fn inner(&mut self, title: &str, known: &'static Known, form: &'static Form) {
        let name = known.name;
        let is_top = title == "The file";
        match form {
            Form::Table(table) if is_top => self.table(&format!("`[{name}]`"), table),
            Form::Table(table) => {
                let title = format!("`{name}` as a table, in {}", title_of(title));
                self.table(&title, table);
            }
            Form::Tables(Form::Table(table)) => self.table(&format!("`[[{name}]]`"), table),
            Form::Map {
                form: Form::Table(table),
                ..
            } => {
                self.table(&format!("`[{name}.NAME]`"), table);
            }
            Form::Either(forms) => forms.iter().for_each(|form| self.inner(title, known, form)),
            _ => {}
        }
    }
}

/// Returns a title without what it is itself in.
fn title_of(title: &str) -> &str {
    title.split(" as a table").next().unwrap_or(title)
}

fn default(known: &Known) -> String {
    let beside = match known.need {
        Need::Required => return "**required**".to_owned(),
        Need::One => return "exactly one of these".to_owned(),
        Need::Beside(others) => {
            let others = others.iter().map(|other| format!("`{other}`"));
            format!("only beside {}", in_words(others))
        }
        Need::Optional => String::new(),
    };
    match (known.default, &*beside) {
        ("", beside) => beside.to_owned(),
        (default, "") => default.to_owned(),
        (default, beside) => format!("{default}; {beside}"),
    }
}

fn in_code(known: &Known) -> String {
    let code: Vec<_> = known.code.iter().map(|path| format!("`{path}`")).collect();
    code.join(", ")
}

fn words(form: &'static Form) -> Vec<&'static crate::word::Word> {
    match form {
        Form::Words(words) => words.iter().collect(),
        Form::Either(forms) => forms.iter().flat_map(words).collect(),
        _ => Vec::new(),
    }
}

fn words_of(known: &'static Known) -> Vec<String> {
    let words = words(known.form).into_iter();
    words
        .map(|word| {
            let text = format!("{:?}", word.to_string());
            format!("| `{}` | `{text}` | {} |", known.name, word.about)
        })
        .collect()
}

/// Says what a field takes.
fn value(form: &'static Form) -> String {
    match form {
        Form::Words(_) => "a word, below".to_owned(),
        Form::Duration => "a duration".to_owned(),
        Form::Quota => "a quota".to_owned(),
        Form::WithVariables => "a text with `${NAME}`".to_owned(),
        Form::Whole(least, most) => match u32::try_from(*most) {
            Ok(_) if least == most => format!("`{least}`"),
            Ok(most) => format!("a whole number, {least} to {most}"),
            Err(_) => format!("a whole number from {least}"),
        },
        Form::List(item) => match item {
            Form::Either(forms) if forms.len() > 2 => "a list of these".to_owned(),
            item => format!("a list, each {}", value(item)),
        },
        Form::Map { form, .. } => match form {
            Form::Table(_) => form_name(form),
            form => format!("a table of names with {}", value(form)),
        },
        Form::Either(forms) => in_words(forms.iter().map(value)),
        form => form_name(form),
    }
}

fn form_name(form: &Form) -> String {
    match form {
        Form::Table(_) => "a table".to_owned(),
        form => form.kind(),
    }
}
