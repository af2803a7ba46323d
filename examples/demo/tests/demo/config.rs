//! The demo with its limits from a file.

use std::{fs, io::Read, process::Stdio};

use crate::{
    board::ROUTES,
    folder::Folder,
    process::{Answer, Demo, ask, demo, new_caller, run_to_its_end},
    support::eventually,
};

pub(crate) const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");

/// The fields of a response, but for the date.
fn fields(answer: &Answer) -> (u16, Vec<(String, String)>) {
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| name != "date");
    (answer.status, headers)
}

#[test]
fn the_file_has_the_limits_of_the_code() {
    let (code, file) = (Demo::start(&[]), Demo::start(&["--config", FILE]));
    for route in ROUTES {
        // A second may end between the two.
        eventually("equal answers", || {
            let caller = new_caller();
            let answers = [&code, &file].map(|demo| {
                // The shortest answers of those that stream.
                let path = format!("/api/{route}?seconds=0&tokens=1");
                let get = ask(demo.address, "GET", &path, Some(&caller));
                let post = || ask(demo.address, "POST", &path, Some(&caller));
                fields(&if get.status == 405 { post() } else { get })
            });
            // A penalty grants nothing that a field could show.
            let shown = match route {
                "penalty" => "x-decided-by",
                _ => "ratelimit-policy",
            };
            assert!(answers[0].1.iter().any(|(name, _)| name == shown));
            answers[0] == answers[1]
        });
    }
}

/// A demo with a file of its own.
struct Watched {
    demo: Demo,
    folder: Folder,
}

impl Watched {
    fn start() -> Self {
        let folder = Folder::new();
        fs::copy(FILE, folder.file()).expect("a copy");
        let mut command = demo();
        let demo = Demo::run(
            command
                .args(["--config", &folder.file()])
                .stderr(Stdio::piped()),
        );
        Self { demo, folder }
    }

    /// Moves another text into the place of the file, as editors and deployments do.
    fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(FILE).expect("the file");
        assert!(text.contains(from), "{from:?} is not in the file");
        let next = self.folder.0.join("next.toml");
        fs::write(&next, text.replace(from, to)).expect("it is written");
        fs::rename(next, self.folder.file()).expect("it is moved");
    }

    fn policy(&self) -> Option<String> {
        let answer = self.demo.get("/api/token-bucket", &new_caller());
        answer.header("ratelimit-policy").map(str::to_owned)
    }

    fn is_rejected(&self) -> bool {
        let metrics = self.demo.get("/metrics", "prometheus").body;
        metrics.contains("\ntower_throttle_config_rejected{file=\"limits.toml\"} 1\n")
    }

    /// Ends the demo, and returns what it logged.
    fn log(mut self) -> String {
        let mut stderr = self.demo.child.stderr.take().expect("its standard error");
        assert!(self.demo.terminate().success());
        let mut lines = String::new();
        stderr.read_to_string(&mut lines).expect("text");
        lines
    }
}

#[test]
fn a_mistake_in_the_file_changes_nothing_and_its_correction_takes_effect() {
    let watched = Watched::start();
    let before = watched.policy();
    assert_eq!(before.as_deref(), Some("\"bucket\";q=1;w=1;tt-burst=10"));
    watched.change("\"1 per second, burst 10\"", "\"1 per secnd, burst 10\"");
    eventually("the gauge", || watched.is_rejected());
    assert_eq!(watched.policy(), before);
    watched.change("\"1 per second, burst 10\"", "\"2 per second, burst 10\"");
    let after = Some("\"bucket\";q=2;w=1;tt-burst=10".to_owned());
    eventually("the corrected file", || watched.policy() == after);
    assert!(!watched.is_rejected());
    let log = watched.log();
    let mistake = "policy \"bucket\".quota: \"1 per secnd, burst 10\": no unit \"secnd\"";
    assert_eq!(log.matches(mistake).count(), 1, "{log}");
}

#[test]
fn a_file_that_cannot_be_used_at_the_start_ends_the_demo_with_all_mistakes() {
    let folder = Folder::new();
    let text = "version = 1\n[[policy]]\nname = \"a\"\nquota = \"9 per secnd\"\nkeys = \"peer\"\n";
    fs::write(folder.file(), text).expect("it is written");
    let ended = run_to_its_end(&["--config", &folder.file()]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    for mistake in [
        "limits.toml:4:9: ",
        "limits.toml:5:1: ",
        "did you mean \"key\"?",
    ] {
        assert!(stderr.contains(mistake), "{stderr}");
    }
}

#[test]
fn a_file_beside_redis_is_a_mistake() {
    let ended = run_to_its_end(&["--config", FILE, "--redis", "redis://127.0.0.1/"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("--redis beside --config"));
}
