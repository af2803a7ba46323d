//! The arguments of all commands, with their help texts.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_throttle::{
    Quota,
    control::{End, Mode},
};

use crate::time;

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
pub(crate) struct Arguments {
    /// Print JSON on stdout, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Report all mistakes of a file.
    Check(Check),
    /// Say what a new version of a file changes: which buckets go on, and which do not.
    ///
    /// The exit code is 1 if a bucket does not go on, or if the change needs a restart.
    Diff(Diff),
    /// Say which policies of a file apply to a request, whom they charge and how much.
    ///
    /// It asks no Redis, and knows no routes. The exit code is 1 if nothing limits the request.
    Explain(Explain),
    /// Print the JSON Schema of the file, for editors.
    Schema,
    /// Show what a caller has left of a policy.
    ///
    /// The exit code is 1 if there is no room for a request, or if the caller is banned.
    #[command(after_help = CALLERS)]
    Peek(OneCaller),
    /// Give a caller a full bucket, and lift a ban by a penalty.
    #[command(after_help = CALLERS)]
    Reset(OneCaller),
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
    /// Give a caller another quota than the policy says.
    #[command(after_help = CALLERS)]
    Override(Override),
    /// Remove the quota of a caller that was made by `override`.
    #[command(after_help = CALLERS)]
    Clear(OneCaller),
    /// Set whether a policy denies, whatever its file or code says.
    Mode(SetMode),
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The files, in TOML.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The readers that the application registers, as `key:tenant,quota:plan`: any other in the file
    /// is a mistake. Without this, all are accepted and listed.
    #[arg(long, value_name = "KIND:NAME", value_delimiter = ',')]
    pub(crate) readers: Option<Vec<String>>,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// The file as it is.
    pub(crate) old: PathBuf,
    /// The file as it will be.
    pub(crate) new: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The file, in TOML.
    pub(crate) file: PathBuf,
    /// The layer that the request passes through. Default: the only one, or `default`.
    #[arg(long, value_name = "NAME")]
    pub(crate) layer: Option<String>,
    /// The method of the request.
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// The path of the request, with its query.
    #[arg(long, default_value = "/")]
    pub(crate) path: String,
    /// The host of the request.
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// A header of the request. Give it several times for several.
    #[arg(long = "header", value_name = "NAME:VALUE")]
    pub(crate) headers: Vec<String>,
    /// The address that the request comes from: that of the client, or of the last proxy.
    #[arg(long, value_name = "IP")]
    pub(crate) peer: Option<IpAddr>,
    /// What a reader of the application returns: `key:tenant=42`, `quota:plan=paid`,
    /// `when:internal=false`, `cost:size=5`. Give it several times for several.
    #[arg(long = "reader", value_name = "KIND:NAME=VALUE")]
    pub(crate) readers: Vec<String>,
}

/// Where the limits are.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// The file with the limits, or `-` for limits that are in code. Then `--redis` is needed.
    pub(crate) file: String,
    /// The URL of Redis, in place of that in the file.
    #[arg(
        long,
        value_name = "URL",
        env = "TOWER_THROTTLE_REDIS",
        hide_env_values = true
    )]
    pub(crate) redis: Option<String>,
    /// The prefix of all keys in Redis, in place of that in the file.
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// The variable of the environment that holds the store's secret, in place of that in the file.
    #[arg(long, value_name = "NAME")]
    pub(crate) secret_variable: Option<String>,
    /// How long one call to Redis may take.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time::duration)]
    pub(crate) timeout: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct OneCaller {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the policy.
    pub(crate) policy: String,
    /// The caller.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) caller: Vec<String>,
    #[command(flatten)]
    pub(crate) quota: WhichQuota,
}

/// Which quota a policy has.
#[derive(Args, Debug)]
pub(crate) struct WhichQuota {
    /// The tier of the caller, for a policy with tiers. Default: that of `otherwise`.
    #[arg(long, conflicts_with = "quota")]
    pub(crate) tier: Option<String>,
    /// The quota of a policy that is in code, such as "10 per second, burst 20".
    #[arg(long)]
    pub(crate) quota: Option<Quota>,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the policy. Default: all policies of the file.
    pub(crate) policy: Option<String>,
    #[command(flatten)]
    pub(crate) quota: WhichQuota,
    /// How many callers to list for each policy.
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
    /// How many keys of Redis to look at for each policy.
    #[arg(long, value_name = "KEYS", default_value_t = 100_000)]
    pub(crate) most_scanned: usize,
}

/// The author of a change, and the reason.
#[derive(Args, Debug)]
pub(crate) struct Signature {
    /// Who makes the change.
    #[arg(long)]
    pub(crate) author: Option<String>,
    /// Why: a ticket, for example.
    #[arg(long, value_name = "REASON")]
    pub(crate) because: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Ban {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the policy.
    pub(crate) policy: String,
    /// The caller.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) caller: Vec<String>,
    /// How long, such as `1h`.
    #[arg(long = "for", value_name = "TIME", value_parser = time::duration)]
    pub(crate) time: Duration,
    /// The caller's name for people. Of the key, only a hash is kept.
    #[arg(long)]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) signature: Signature,
}

#[derive(Args, Debug)]
pub(crate) struct Override {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the policy.
    pub(crate) policy: String,
    /// The caller, and last its quota, such as "100 per second".
    #[arg(required = true, num_args = 2.., value_names = ["KEY", "QUOTA"])]
    pub(crate) caller_and_quota: Vec<String>,
    /// When it ends: a time from now such as `7d`, or a date such as `2026-12-24` or
    /// `2026-12-24T08:00:00Z`. Default: when it is removed.
    #[arg(long, value_name = "WHEN", value_parser = time::until)]
    pub(crate) until: Option<End>,
    /// The caller's name for people. Of the key, only a hash is kept.
    #[arg(long)]
    pub(crate) label: Option<String>,
    #[command(flatten)]
    pub(crate) signature: Signature,
}

#[derive(Args, Debug)]
pub(crate) struct SetMode {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the policy.
    pub(crate) policy: String,
    /// `default` is the mode that file or code say.
    pub(crate) mode: NewMode,
    /// When it ends: a time from now such as `7d`, or a date such as `2026-12-24` or
    /// `2026-12-24T08:00:00Z`. Default: when it is set to `default`.
    #[arg(long, value_name = "WHEN", value_parser = time::until)]
    pub(crate) until: Option<End>,
    #[command(flatten)]
    pub(crate) signature: Signature,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NewMode {
    /// Deny callers that are over the limit.
    Enforce,
    /// Count, and deny nobody.
    Shadow,
    /// Do not even count.
    Off,
    /// As the file or the code says.
    Default,
}

impl NewMode {
    pub(crate) const fn mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => Some(Mode::Off),
            Self::Default => None,
        }
    }
}
