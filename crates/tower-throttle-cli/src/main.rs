//! The command line of tower-throttle: checks files of limits, explains them, and looks at and
//! changes the limits of a running fleet.

mod answer;
mod bucket;
mod check;
mod control;
mod error;
mod explain;
mod live;
mod readers;
mod reset_all;
mod time;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::{
    bucket::OneBucket,
    check::{Check, Diff},
    control::{Ban, Override, SetMode},
    explain::Explain,
    live::{OneCaller, Place},
    reset_all::ResetAll,
    top::Top,
};

const EXIT_CODES: &str = "Exit codes: 0 all is fine; 1 the answer is no, or a file has mistakes; 2 \
the command is wrong, or cannot be done.";

const CALLERS: &str = "A caller is the value of a key: `text:VALUE`, `number:42`, \
`ip:203.0.113.9`, `fingerprint:..`, or `everyone:` for a bucket that all callers share. Without such \
a word, 22 characters that are a fingerprint are one, and anything else is a text. Give several to \
name a key of several parts. An address gets the IPv6 prefix of the policy's key. \
A policy with several keys reads them from `header:NAME=VALUE`, `cookie:NAME=VALUE`, `bearer:TOKEN`, \
`method:GET` and `ip:ADDRESS`, as from a request.";

/// Checks files of limits, explains them, and looks at and changes the limits of a running fleet.
#[derive(Debug, Parser)]
#[command(name = "tower-throttle", version, after_help = EXIT_CODES)]
struct Arguments {
    /// Print JSON on stdout, for programs.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report all mistakes of a file.
    Check(Check),
    /// List what a new version of a file changes: which buckets are kept, and which are not.
    ///
    /// The exit code is 1 if a bucket is not kept, or if the change needs a restart.
    Diff(Diff),
    /// List which policies of a file apply to a request, which callers they charge and how much.
    ///
    /// It asks no Redis, and knows no routes. The exit code is 1 if nothing limits the request.
    Explain(Explain),
    /// Print the JSON Schema of the file, for editors.
    Schema,
    /// Show what a caller has left of a policy.
    ///
    /// The exit code is 1 if there is no room for a request, or if the caller is banned.
    #[command(after_help = CALLERS)]
    Peek(OneBucket),
    /// Give a caller a full bucket, and lift a ban by a penalty.
    #[command(after_help = CALLERS)]
    Reset(OneBucket),
    /// Give all callers of a policy a full bucket, and lift their bans by a penalty.
    ///
    /// The exit code is 1 if there were more keys than `--most-scanned`, so that some callers may be
    /// left.
    ResetAll(ResetAll),
    /// List the callers that have used most of a policy.
    Top(Top),
    /// List all that operators have changed: quotas, bans, modes and lists.
    Control(Place),
    /// Deny all requests of a caller to which a policy applies, for a time.
    #[command(after_help = CALLERS)]
    Ban(Ban),
    /// End a ban that was made by `ban`.
    #[command(after_help = CALLERS)]
    Unban(OneCaller),
    /// Give a caller another quota than that of the policy.
    #[command(after_help = CALLERS)]
    Override(Override),
    /// Remove the quota of a caller that was made by `override`.
    #[command(after_help = CALLERS)]
    Clear(OneCaller),
    /// Set whether a policy denies, whatever its file or code sets.
    Mode(SetMode),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Arguments { json, command } = Arguments::parse();
    let answered = match command {
        Command::Check(check) => check.run(),
        Command::Diff(diff) => diff.run(),
        Command::Explain(explain) => explain.run(),
        Command::Schema => check::schema(),
        Command::Peek(bucket) => bucket.peek().await,
        Command::Reset(bucket) => bucket.reset().await,
        Command::ResetAll(all) => all.run().await,
        Command::Top(top) => top.run().await,
        Command::Control(place) => control::list(&place).await,
        Command::Ban(ban) => ban.run().await,
        Command::Unban(caller) => control::unban(&caller).await,
        Command::Override(change) => change.run().await,
        Command::Clear(caller) => control::clear(&caller).await,
        Command::Mode(mode) => mode.run().await,
    };
    answer::print(answered, json)
}
