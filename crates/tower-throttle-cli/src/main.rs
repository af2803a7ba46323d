//! The command line of tower-throttle: checks files of limits, explains them, and looks at and
//! changes the limits of a running fleet.

mod answer;
mod arguments;
mod check;
mod control;
mod diff;
mod entries;
mod explain;
mod file;
mod live;
mod peek;
mod readers;
mod reset;
mod time;
mod top;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use self::{
    answer::{Answer, Failure},
    arguments::{Arguments, Command},
};

fn main() -> ExitCode {
    let Arguments { json, command } = Arguments::parse();
    let answered = run(command);
    answer::print(answered, json)
}

fn run(command: Command) -> Result<Answer, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Check(arguments) => check::run(&arguments),
            Command::Diff(arguments) => diff::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Schema => Ok(check::schema()),
            Command::Peek(arguments) => peek::run(&arguments).await,
            Command::Reset(arguments) => reset::run(&arguments).await,
            Command::Top(arguments) => top::run(&arguments).await,
            Command::Control(arguments) => entries::run(&arguments).await,
            Command::Ban(arguments) => control::ban(&arguments).await,
            Command::Unban(arguments) => control::unban(&arguments).await,
            Command::Override(arguments) => control::set_quota(&arguments).await,
            Command::Clear(arguments) => control::clear(&arguments).await,
            Command::Mode(arguments) => control::set_mode(&arguments).await,
        }
    })
}
