//! The demo with its limits from a file.

use std::fs;

use crate::{
    board::ROUTES,
    folder::Folder,
    process::{Answer, Demo, ask, new_caller, run_to_its_end},
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
