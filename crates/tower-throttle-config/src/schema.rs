//! The JSON Schema of the file, made from the [descriptor](super::descriptor).

use std::ptr;

use serde_json::{Map, Value, json};

use super::{
    Config,
    descriptor::FILE,
    form::{Form, Need, Table},
    word::Word,
};

impl Config {
    /// Returns the JSON Schema of the file (draft 2020-12): editors complete names and show
    /// mistakes by it. The repository has it as
    /// [`docs/tower-throttle.schema.json`](https://github.com/tower-throttle/tower-throttle/blob/main/docs/tower-throttle.schema.json).
    ///
    /// ```
    /// let schema = tower_throttle_config::Config::json_schema();
    /// std::fs::write(std::env::temp_dir().join("tower-throttle.schema.json"), schema)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn json_schema() -> String {
        let mut schema = Schema::default();
        let mut file = schema.table(&FILE);
        if let Value::Object(file) = &mut file {
            file.insert(
                "$schema".to_owned(),
                json!("https://json-schema.org/draft/2020-12/schema"),
            );
            file.insert("title".to_owned(), json!("Limits of tower-throttle"));
            file.insert("$defs".to_owned(), Value::Object(schema.definitions));
        }
        format!("{file:#}\n")
    }
}

/// What is collected on the way through the descriptor.
#[derive(Default)]
struct Schema {
    /// Tables, and forms that contain themselves.
    definitions: Map<String, Value>,
    /// The forms that are being described.
    open: Vec<Open>,
}

/// A form with alternatives that is being described.
struct Open {
    form: *const Form,
    /// What a definition is named after.
    name: String,
    /// Whether it contains itself.
    is_named: bool,
}

impl Schema {
    /// Describes a table, without a definition of its own.
    fn table(&mut self, table: &'static Table) -> Value {
        let mut properties = Map::new();
        let mut beside = Map::new();
        let (mut required, mut choices) = (Vec::new(), Vec::new());
        for known in table.fields {
            let mut field = self.form(known.form, known.name);
            if let Value::Object(field) = &mut field {
                let about = match known.default {
                    "" => known.about.to_owned(),
                    default => format!("{} Default: {default}.", known.about),
                };
                field.insert("description".to_owned(), json!(about));
            }
            properties.insert(known.name.to_owned(), field);
            match known.need {
                Need::Required => required.push(known.name),
                Need::One => choices.push(json!({ "required": [known.name] })),
                Need::Beside(others) => {
                    let others = others.iter().map(|other| json!({ "required": [other] }));
                    let others: Vec<_> = others.collect();
                    beside.insert(known.name.to_owned(), json!({ "anyOf": others }));
                }
                Need::Optional => {}
            }
        }
        let mut schema = json!({
            "type": "object",
            "description": table.about,
            "properties": properties,
            "additionalProperties": false,
        });
        let more = [
            ("required", json!(required), required.is_empty()),
            ("oneOf", json!(choices), choices.is_empty()),
            ("dependentSchemas", json!(beside), beside.is_empty()),
            ("minProperties", json!(1), table.may_be_empty),
        ];
        if let Value::Object(schema) = &mut schema {
            let more = more.into_iter().filter(|(_, _, is_left_out)| !is_left_out);
            schema.extend(more.map(|(name, value, _)| (name.to_owned(), value)));
        }
        schema
    }

    /// Describes a form. `name`: that of the field, which a definition is named after.
    fn form(&mut self, form: &'static Form, name: &str) -> Value {
        match form {
            Form::Text | Form::PolicyName | Form::Reader(_) => {
                json!({ "type": "string", "minLength": 1 })
            }
            Form::Quota => json!({
                "type": "string",
                "examples": ["10 per second, burst 20", "fixed window of 1000 per day"],
            }),
            Form::WithVariables => json!({ "type": "string" }),
            Form::Duration => json!({
                "type": "string",
                "pattern": r"^\s*[0-9][0-9_]*\s*[A-Za-zµμ]+\s*$",
                "examples": ["50ms", "30s", "5 minutes"],
            }),
            Form::Words(words) => {
                let words: Vec<_> = words.iter().map(word).collect();
                json!({ "anyOf": words })
            }
            Form::Whole(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Form::Flag => json!({ "type": "boolean" }),
            Form::True => json!({ "const": true }),
            Form::List(item) | Form::Tables(item) => {
                json!({ "type": "array", "items": self.form(item, name), "minItems": 1 })
            }
            Form::Table(table) => {
                if !self.definitions.contains_key(table.name) {
                    // A table may contain itself.
                    self.definitions.insert(table.name.to_owned(), Value::Null);
                    let definition = self.table(table);
                    self.definitions.insert(table.name.to_owned(), definition);
                }
                reference(table.name)
            }
            Form::Map { form, .. } => json!({
                "type": "object",
                "additionalProperties": self.form(form, name),
                "minProperties": 1,
            }),
            Form::Either(forms) => self.either(form, forms, name),
        }
    }

    fn either(&mut self, form: &'static Form, forms: &'static [Form], name: &str) -> Value {
        let mut open = self.open.iter_mut();
        if let Some(open) = open.find(|open| ptr::eq(open.form, form)) {
            open.is_named = true;
            return reference(&open.name);
        }
        self.open.push(Open {
            form,
            name: name.to_owned(),
            is_named: false,
        });
        let forms: Vec<_> = forms.iter().map(|form| self.form(form, name)).collect();
        let schema = json!({ "anyOf": forms });
        match self.open.pop() {
            Some(open) if open.is_named => {
                let reference = reference(&open.name);
                let other = self.definitions.insert(open.name, schema);
                debug_assert!(other.is_none(), "two definitions have one name");
                reference
            }
            _ => schema,
        }
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn word(word: &Word) -> Value {
    match word.argument {
        None => json!({ "const": word.text, "description": word.about }),
        Some(argument) => json!({
            "type": "string",
            "pattern": format!("^{}{}", word.text, argument.pattern()),
            "description": format!("`{word}`: {}", word.about),
        }),
    }
}
