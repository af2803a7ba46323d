//! `diff`: what a new version of a file changes.

use serde_json::json;
use tower_throttle_config::{Change, Config, Effect};

use crate::{
    answer::{Answer, Failure},
    arguments::Diff,
    file,
};

pub(crate) fn run(arguments: &Diff) -> Result<Answer, Failure> {
    let (old, new) = (file::read(&arguments.old)?, file::read(&arguments.new)?);
    new.check()?;
    let changes = Config::diff(&old, &new);
    let is_harmless = |change: &Change| matches!(change.effect, Effect::Kept | Effect::New);
    let lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
    let text = match lines.is_empty() {
        true => "nothing changes".to_owned(),
        false => lines.join("\n"),
    };
    let json = changes.all().iter().map(|change| {
        let fields = change.fields.iter();
        let fields = fields.map(
            |field| json!({ "name": field.name, "before": field.before, "after": field.after }),
        );
        json!({
            "path": change.path,
            "effect": word(change.effect),
            "fields": fields.collect::<Vec<_>>(),
        })
    });
    let json = json!({ "changes": json.collect::<Vec<_>>() });
    let is_fine = changes.all().iter().all(is_harmless);
    Ok(Answer::fine(text, json).fine_if(is_fine))
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Kept => "kept",
        Effect::StartsAfresh => "starts_afresh",
        Effect::New => "new",
        Effect::Gone => "gone",
        Effect::NeedsRestart => "needs_restart",
        _ => "other",
    }
}
