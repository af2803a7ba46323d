//! The JSON Schema of the file, made from its [tables](super::tables).

use std::sync::LazyLock;

use schemars::{
    Schema,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde_json::{Value, json};

use super::{Config, suggest::in_words, tables::File};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = settings.into_generator().into_root_schema_for::<File>();
    RecursiveTransform(strict).transform(&mut schema);
    schema.to_value()
});

/// Restricts a schema to the values that a file may have.
fn strict(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    // An `Option` is `null` in JSON, and TOML has no such value.
    if let Some(Value::Array(types)) = object.get("type") {
        let known = types.first().cloned().unwrap_or_default();
        object.insert("type".to_owned(), known);
    }
    if let Some(Value::Array(mut forms)) = object.remove("anyOf") {
        forms.retain(|form| form["type"] != "null");
        match &mut *forms {
            [Value::Object(only)] => object.append(only),
            _ => drop(object.insert("anyOf".to_owned(), forms.into())),
        }
    }
    object.remove("format");
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    let mut add = |name: &str, value| object.entry(name).or_insert(value).clone();
    let kind = add("type", Value::Null);
    if kind == "array" {
        add("minItems", json!(1));
    }
    if kind == "object" {
        add("minProperties", json!(1));
        add("additionalProperties", json!(false));
    }
    object.retain(|_, value| !value.is_null());
}

/// Returns the schema of a whole file.
pub(super) fn root() -> &'static Value {
    &SCHEMA
}

/// A schema without alternatives, and the name of its definition.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) schema: &'static Value,
}

impl Form {
    /// Returns what a value may look like: each takes another type of values, or another text.
    pub(super) fn all(schema: &'static Value) -> Vec<Self> {
        Self::named("", schema)
    }

    fn named(name: &'static str, schema: &'static Value) -> Vec<Self> {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let definition = root()["$defs"].get(name);
            return definition.map_or(Vec::new(), |definition| Self::named(name, definition));
        }
        let is_table = schema.get("properties").is_some();
        let one_of = schema.get("oneOf").filter(|_| !is_table);
        match schema.get("anyOf").or(one_of).and_then(Value::as_array) {
            Some(forms) => {
                let forms = forms.iter();
                forms.flat_map(|form| Self::named(name, form)).collect()
            }
            None => vec![Self { name, schema }],
        }
    }

    /// Returns whether it is for values of this type.
    pub(super) fn is_for(&self, value: &Value) -> bool {
        match (self.schema["type"].as_str(), value) {
            (Some("boolean"), Value::Bool(_)) => {
                self.schema.get("const").is_none_or(|only| only == value)
            }
            (Some("integer"), Value::Number(number)) => !number.is_f64(),
            (Some("string"), Value::String(_)) => true,
            (Some("array"), Value::Array(_)) | (Some("object"), Value::Object(_)) => true,
            _ => false,
        }
    }

    /// Returns the word that it is for, such as `header:NAME`. `None`: it takes any text.
    pub(super) fn word(&self) -> Option<&'static str> {
        let word = self.schema.get("const").or(self.schema.get("x-word"));
        word?.as_str()
    }

    /// Describes it for people. `field`: where it is.
    pub(super) fn kind(&self, field: &str) -> String {
        let Self { schema, .. } = self;
        let is_table = |item: &Self| item.schema["type"] == "object";
        let is_list_of_tables = || Self::all(&schema["items"]).iter().all(is_table);
        if let Some(word) = self.word() {
            return format!("{word:?}");
        }
        match (schema["title"].as_str(), schema["type"].as_str()) {
            (Some(title), _) => title.to_owned(),
            (_, Some("integer")) if schema["minimum"] == schema["maximum"] => {
                schema["minimum"].to_string()
            }
            (_, Some("integer")) => "a whole number".to_owned(),
            (_, Some("boolean")) if schema.get("const").is_some() => "`true`".to_owned(),
            (_, Some("boolean")) => "`true` or `false`".to_owned(),
            (_, Some("array")) if is_list_of_tables() => format!("a list of tables, `[[{field}]]`"),
            (_, Some("array")) => "a list".to_owned(),
            (_, Some("object")) => "a table".to_owned(),
            _ => "a text".to_owned(),
        }
    }
}

/// Describes the kinds of values that a schema accepts.
pub(super) fn kinds(schema: &'static Value, field: &str) -> String {
    let forms = Form::all(schema).into_iter();
    in_words(forms.map(|form| form.kind(field)).collect())
}

/// Describes a value for people.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "a date",
        Value::Bool(true) => "`true`",
        Value::Bool(false) => "`false`",
        Value::Number(number) if number.as_f64() == Some(f64::MAX) => "a number that is too large",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

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
        format!("{:#}\n", root())
    }
}
