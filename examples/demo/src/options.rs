//! The command line.

use std::process::exit;

use crate::traffic::Mode;

const USAGE: &str = "\
Usage: cargo run -p demo [-- OPTIONS]

  --listen ADDR   listen on ADDR (default: 127.0.0.1:3000; port 0: any free one)
  --redis URL     keep the buckets in Redis, as in redis://127.0.0.1:6379/,
                  redis-cluster://host,host/ or
                  redis-sentinel://host,host/?sentinelServiceName=mymaster
                  (default: in the memory of this process)
  --config FILE   read limits and store from FILE, as in examples/demo/limits.toml,
                  and follow its changes (default: the limits of in_code.rs)
  --traffic KIND  send requests to the demo itself: steady, burst or attack, until
                  it is switched off on the page (default: off)
  --help          print this";

pub(crate) struct Options {
    pub(crate) listen: String,
    pub(crate) redis_url: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) traffic: Mode,
}

impl Options {
    /// Parses the command line. Exits if it asks for help or has a mistake.
    pub(crate) fn from_command_line() -> Self {
        match Self::parse(std::env::args().skip(1)) {
            Ok(Some(options)) => options,
            Ok(None) => {
                println!("{USAGE}");
                exit(0);
            }
            Err(mistake) => {
                eprintln!("demo: {mistake}\n\n{USAGE}");
                exit(2);
            }
        }
    }

    /// Returns `None` if help is wanted.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:3000".to_owned(),
            redis_url: None,
            config: None,
            traffic: Mode::Off,
        };
        while let Some(word) = words.next() {
            let mut value = |what| {
                let next = words.next().filter(|next| !next.starts_with("--"));
                next.ok_or_else(|| format!("{word} needs {what}"))
            };
            match word.as_str() {
                "--listen" => options.listen = value("an address, as in 127.0.0.1:3000")?,
                "--redis" => options.redis_url = Some(value("a URL, as in redis://127.0.0.1/")?),
                "--config" => options.config = Some(value("a file, as in limits.toml")?),
                "--traffic" => options.traffic = value("steady, burst or attack")?.parse()?,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("there is no option {word:?}")),
            }
        }
        if options.redis_url.is_some() && options.config.is_some() {
            return Err("--redis beside --config, which has a table [store]".to_owned());
        }
        Ok(Some(options))
    }
}
