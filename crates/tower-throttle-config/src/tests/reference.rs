//! The reference in `docs/configuration-reference.md` is made from the schema.

use std::{env, fmt::Write, fs, path::Path};

use serde_json::Value;

use super::reach::{code, fields, snake_case};
use crate::{
    schema::{self, Form},
    suggest::in_words,
    tests::repository,
};

const PAGE: &str = "docs/configuration-reference.md";
const START: &str = "<!-- The reference: made from the schema -->\n";
const END: &str = "<!-- The end of the reference -->\n";

#[test]
fn the_reference_in_the_documentation_is_the_one_of_the_code() {
    let Some(page) = repository::read(PAGE) else {
        return;
    };
    let (before, rest) = page.split_once(START).expect("a start");
    let (written, after) = rest.split_once(END).expect("an end");
    let mut reference = Reference::default();
    reference.table("The file", "File", schema::root());
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

    fn table(&mut self, title: &str, name: &'static str, table: &'static Value) {
        if self.seen.contains(&name) {
            return;
        }
        self.seen.push(name);
        let about = table["description"].as_str().expect(name);
        self.line(&format!("\n## {title}\n\n{about}\n"));
        self.line("| field | meaning | value | default | in code |");
        self.line("|---|---|---|---|---|");
        let mut fields: Vec<_> = fields(table).collect();
        fields.sort_by_key(|(field, _)| (need(table, field).is_none(), *field));
        for (field, schema) in &fields {
            let about = schema["description"].as_str().expect(field);
            let (about, default) = about.split_once(" Default: ").unwrap_or((about, ""));
            let needed = need(table, field).or(beside(table, field));
            let mut defaults = vec![default.trim_end_matches('.').to_owned()];
            defaults.extend(needed);
            defaults.retain(|text| !text.is_empty());
            let code = code().remove(&*format!("{}.{field}", snake_case(name)));
            let code = code.unwrap_or_default().into_iter();
            let code: Vec<_> = code.map(|path| format!("`{path}`")).collect();
            let row = format!(
                "| `{field}` | {about} | {} | {} | {} |",
                value(schema, field),
                defaults.join("; "),
                code.join(", "),
            );
            self.line(&row);
        }
        let mut is_first = true;
        for (field, schema) in &fields {
            for form in Form::all(schema) {
                let Some(word) = form.word() else {
                    continue;
                };
                if is_first {
                    self.line("\n| field | word | meaning |\n|---|---|---|");
                    is_first = false;
                }
                let about = form.schema["description"].as_str().expect(word);
                self.line(&format!("| `{field}` | `{word:?}` | {about} |"));
            }
        }
        for (field, schema) in &fields {
            for form in Form::all(schema) {
                self.inner(title, field, form);
            }
        }
    }

    fn inner(&mut self, title: &str, field: &str, Form { name, schema }: Form) {
        let of_names = schema
            .get("additionalProperties")
            .filter(|schema| schema.is_object());
        let inner = of_names.or(schema.get("items").filter(|_| title == "The file"));
        if schema.get("properties").is_some() {
            let title = match title {
                "The file" => format!("`[{field}]`"),
                title => format!(
                    "`{field}` as a table, in {}",
                    title.split(" as a table").next().expect("a title")
                ),
            };
            self.table(&title, name, schema);
        } else if let Some(inner) = inner {
            let title = match of_names {
                Some(_) => format!("`[{field}.NAME]`"),
                None => format!("`[[{field}]]`"),
            };
            for form in Form::all(inner)
                .iter()
                .filter(|form| form.schema.get("properties").is_some())
            {
                self.table(&title, form.name, form.schema);
            }
        }
    }
}

fn need(table: &Value, field: &str) -> Option<String> {
    let mut required = table["required"].as_array().into_iter().flatten();
    let mut choices = table["oneOf"].as_array().into_iter().flatten();
    let is_choice = choices.any(|choice| choice["required"][0] == field);
    let is_required = required.any(|required| required == field);
    let need = is_required.then_some("**required**");
    need.or(is_choice.then_some("exactly one of these"))
        .map(str::to_owned)
}

fn beside(table: &Value, field: &str) -> Option<String> {
    let others = table["dependentSchemas"].get(field)?["anyOf"]
        .as_array()?
        .iter();
    let others =
        others.map(|other| format!("`{}`", other["required"][0].as_str().expect("a field")));
    Some(format!("only with {}", in_words(others.collect())))
}

/// Describes the values of a field.
fn value(schema: &'static Value, field: &str) -> String {
    let mut values: Vec<_> = Form::all(schema)
        .into_iter()
        .map(|form| one(form, field))
        .collect();
    values.dedup();
    in_words(values)
}

fn one(form: Form, field: &str) -> String {
    let schema = form.schema;
    let kind = form.kind(field);
    let kind = kind.split(" such as ").next().expect("a kind").to_owned();
    let items = || Form::all(&schema["items"]);
    if form.word().is_some() {
        return "a word, below".to_owned();
    }
    match (
        schema["type"].as_str(),
        schema["minimum"].as_u64(),
        schema["maximum"].as_u64(),
    ) {
        (Some("integer"), Some(least), Some(most)) if least == most => format!("`{least}`"),
        (Some("integer"), Some(least), Some(most)) => format!("{kind}, {least} to {most}"),
        (Some("integer"), Some(least), None) => format!("{kind} from {least}"),
        (Some("array"), ..) if kind != "a list" => kind,
        (Some("array"), ..) if items().len() > 2 => "a list of these".to_owned(),
        (Some("array"), ..) => format!("a list, each {}", value(&schema["items"], field)),
        (Some("object"), ..) if schema["additionalProperties"].is_object() => {
            let inner = &schema["additionalProperties"];
            match value(inner, field) {
                table if table == "a table" => table,
                values => format!("a table of names with {values}"),
            }
        }
        _ => kind,
    }
}
