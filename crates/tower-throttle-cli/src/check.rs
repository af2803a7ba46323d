//! `check`, `diff` and `schema`: look at a file alone, without a request and without Redis.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use tower_throttle::plain_text;
use tower_throttle_config::{Change, Config, ConfigErrors, Effect, ReaderName};

use crate::{
    answer::{Answer, lines, problems},
    error::Result,
    readers::{parse_name, read_file, stand_ins},
};

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The files, in TOML.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The readers that the application registers, as `key:tenant,quota:plan`: any other in the file
    /// is a mistake. Without this, all are accepted and listed.
    #[arg(long, value_name = "KIND:NAME", value_delimiter = ',', value_parser = parse_name)]
    readers: Option<Vec<ReaderName>>,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// The file as it is.
    old: PathBuf,
    /// The file as it will be.
    new: PathBuf,
}

impl Check {
    pub(crate) fn run(&self) -> Result<Answer> {
        let answers = self.files.iter();
        let answers = answers.map(|file| self.check(file).or_else(mistakes));
        let answers: Vec<_> = answers.collect::<Result<_, _>>()?;
        Ok(Answer {
            text: answers.iter().map(|answer| &*answer.text).collect(),
            is_fine: answers.iter().all(|answer| answer.is_fine),
            json: answers.into_iter().map(|answer| answer.json).collect(),
        })
    }

    fn check(&self, file: &Path) -> Result<Answer> {
        let config = Config::from_path(file)?;
        let needs = config.reader_names();
        let readers = stand_ins(self.readers.as_ref().unwrap_or(&needs), &[])?;
        let config = config.readers(readers);
        config.check()?;
        let names = config.names();
        let needs = needs.iter().map(|one| format!("{}:{}", one.kind, one.name));
        let json = json!({
            "ok": true,
            "problems": [],
            "policies": names.policies,
            "layers": names.layers,
            "limiters": names.limiters,
            "needs": needs.collect::<Vec<_>>(),
        });
        let names = lines(&json, &["policies", "layers", "limiters", "needs"]);
        let file = file.display().to_string();
        let text = format!("{}: ok\n{names}", plain_text(&file));
        Ok(Answer::fine(text, json))
    }
}

/// Returns the mistakes of a file that can be read.
fn mistakes(failure: Box<dyn Error + Send + Sync>) -> Result<Answer> {
    let errors = failure.downcast::<ConfigErrors>()?;
    let mut found = errors.problems().iter();
    if found.any(|problem| problem.code() == "file-unreadable") {
        return Err(errors);
    }
    let json = json!({ "ok": false, "problems": problems(&errors) });
    Ok(Answer::fine(format!("{errors}\n"), json).fine_if(false))
}

impl Diff {
    pub(crate) fn run(&self) -> Result<Answer> {
        let (old, new) = (read_file(&self.old, &[])?, read_file(&self.new, &[])?);
        new.check()?;
        let changes = Config::diff(&old, &new);
        let text = match changes.is_empty() {
            true => "nothing changes".to_owned(),
            false => changes.to_string(),
        };
        let json: Value = changes.all().iter().map(change).collect();
        let mut effects = changes.all().iter().map(|change| change.effect);
        let is_fine = effects.all(|effect| matches!(effect, Effect::Kept | Effect::New));
        Ok(Answer::fine(text, json!({ "changes": json })).fine_if(is_fine))
    }
}

fn change(change: &Change) -> Value {
    let fields = change.fields.iter();
    let fields = fields
        .map(|field| json!({ "name": field.name, "before": field.before, "after": field.after }));
    json!({
        "path": change.path,
        "effect": change.effect.to_string(),
        "fields": fields.collect::<Vec<_>>(),
    })
}

pub(crate) fn schema() -> Result<Answer> {
    let schema = Config::json_schema();
    let json = serde_json::from_str(&schema)?;
    Ok(Answer::fine(schema, json))
}
