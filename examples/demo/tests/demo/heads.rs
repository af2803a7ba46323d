//! The heads of the examples: each command in them prints what the lines after it promise.
//!
//! A line that starts with `# ` is one of the output of the command before it. Other lines may come
//! between two of these, and `..` stands for the rest of a line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::process::{Demo, example_path};
use crate::support::prelude::*;

pub(crate) struct Step<'a> {
    pub(crate) command: &'a str,
    pub(crate) promised: Vec<&'a str>,
}

impl Step<'_> {
    /// Returns the first promise that an output does not keep.
    fn broken(&self, output: &str) -> Option<&str> {
        let mut lines = output.lines().map(str::trim);
        let keeps = |line: &str, promise: &str| match promise.strip_suffix("..") {
            Some(start) => line.starts_with(start),
            None => line == promise,
        };
        let mut promised = self.promised.iter().copied();
        promised.find(|promise| !lines.any(|line| keeps(line, promise)))
    }

    /// Returns whether the command asks for something that takes no units and may need a moment.
    fn is_a_look(&self) -> bool {
        let looks = ["/left", "/limits", "/health/redis"];
        looks.iter().any(|path| self.command.ends_with(path))
    }
}

/// Returns the steps of all blocks that begin with this fence.
pub(crate) fn steps<'a>(lines: impl Iterator<Item = &'a str>, fence: &str) -> Vec<Step<'a>> {
    let (mut steps, mut is_between) = (Vec::<Step<'_>>::new(), false);
    for line in lines.map(str::trim) {
        if line.starts_with("```") {
            is_between = !is_between && line == fence;
        } else if let Some(promise) = line.strip_prefix("# ").filter(|_| is_between) {
            let step = steps.last_mut().expect("a command before a promise");
            step.promised.push(promise);
        } else if is_between {
            steps.push(Step {
                command: line,
                promised: Vec::new(),
            });
        }
    }
    steps
}

/// Runs a command, and returns what it printed.
fn run(command: &mut Command) -> String {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    eventually("the end of a command", || {
        child.try_wait().expect("its state").is_some()
    });
    let output = child.wait_with_output().expect("its output");
    String::from_utf8(output.stdout).expect("a text")
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).env("NO_PROXY", "*");
    command
}

/// What the steps of one head have started.
#[derive(Default)]
pub(crate) struct Stage {
    redis: Option<RedisServer>,
    pub(crate) servers: Vec<Demo>,
    /// The ports of the head, and the free ones that stand in for them.
    ports: HashMap<String, String>,
}

impl Stage {
    /// Runs a step until its output is as promised. Only looks are run again.
    pub(crate) fn play(&mut self, step: &Step<'_>) {
        eventually(step.command, || {
            let output = self.run(step);
            let broken = step.broken(&output);
            assert!(
                broken.is_none() || step.is_a_look(),
                "no line {:?} from {}\n{output}",
                broken.unwrap_or_default(),
                step.command
            );
            broken.is_none()
        });
    }

    fn run(&mut self, step: &Step<'_>) -> String {
        let command = step.command.replace("cargo run --release ", "cargo run ");
        if let Some(rest) = command.strip_prefix("redis-server --port ") {
            self.start_redis(rest.split(' ').next().expect("a port"));
        } else if command.starts_with("redis-cli ") && command.contains("shutdown") {
            self.redis.as_mut().expect("a server").kill();
        } else if command == "cargo run -p demo" {
            self.serve(&format!("exec '{}'", env!("CARGO_BIN_EXE_demo")), "");
        } else if let Some((variables, rest)) = command.split_once("cargo run --example ") {
            let (example, options) = rest.split_once(" -- ").unwrap_or((rest, ""));
            let path = example_path(example);
            let program = format!("exec env {variables} '{}'", path.display());
            if !step.promised.is_empty() {
                return run(&mut shell(&format!("{program} 2>&1")));
            }
            self.serve(&program, options);
        } else {
            assert!(
                !step.promised.is_empty(),
                "{} promises nothing",
                step.command
            );
            return self.output(step.command);
        }
        String::new()
    }

    /// Runs a command that starts no server, and returns what it printed.
    pub(crate) fn output(&self, command: &str) -> String {
        run(&mut shell(&self.with_free_ports(command)))
    }

    fn start_redis(&mut self, port: &str) {
        if let Some(server) = &mut self.redis {
            return server.run();
        }
        let server = self.redis.insert(RedisServer::start());
        let free = server.port().to_string();
        self.ports.insert(port.to_owned(), free);
    }

    fn serve(&mut self, program: &str, options: &str) {
        let mut listen = options.split(' ').skip_while(|word| *word != "--listen");
        let address = listen.nth(1).unwrap_or("127.0.0.1:3000");
        let options = options.replace(&format!("--listen {address}"), "");
        let options = self.with_free_ports(&options);
        let server = Demo::run(&mut shell(&format!("{program} {options} \"$@\"")));
        let (_, port) = address.split_once(':').expect("a port");
        let free = server.address.port().to_string();
        self.ports.insert(port.to_owned(), free);
        self.servers.push(server);
    }

    fn with_free_ports(&self, text: &str) -> String {
        let is_other = |next: char| !next.is_ascii_digit();
        let replace = |word: &str| {
            let number = word.trim_end_matches(is_other);
            let free = self.ports.get(number);
            free.map_or(word.to_owned(), |free| word.replace(number, free))
        };
        text.split_inclusive(is_other).map(replace).collect()
    }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let entries = fs::read_dir(folder.expect("a folder")).expect("the folder of the examples");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .collect()
}

fn play(path: &Path) {
    let source = fs::read_to_string(path).expect("a text");
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let steps = steps(head, "```text");
    assert!(!steps.is_empty(), "{} has no commands", path.display());
    let mut stage = Stage::default();
    for step in &steps {
        stage.play(step);
    }
}

#[test]
fn each_command_in_the_head_of_an_example_prints_what_the_head_promises() {
    let examples = examples();
    assert!(examples.len() >= 13, "{examples:?}");
    thread::scope(|scope| {
        for path in &examples {
            // A thread that panics prints its name.
            let thread = thread::Builder::new().name(path.display().to_string());
            thread.spawn_scoped(scope, || play(path)).expect("a thread");
        }
    });
}

#[test]
fn the_index_of_the_examples_has_each_of_them() {
    let index = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let index = fs::read_to_string(index).expect("the index");
    for path in examples() {
        let name = path.file_stem().expect("a name").to_string_lossy();
        assert!(index.contains(&format!("\n| `{name}` |")), "{name}");
    }
}
