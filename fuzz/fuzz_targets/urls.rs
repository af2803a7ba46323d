//! Redis URLs: no error shows a password, wherever it is in the text, and a well-formed URL is
//! read correctly.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle::fuzzing;

/// With every byte that could end it too soon.
const PASSWORD: &str = ":hunter1?hunter2&hunter3=hunter4/hunter5,hunter6#hunter7@";

fn assert_hides(url: &str) {
    if let Err(mistake) = fuzzing::url(url) {
        for shown in [mistake.to_string(), format!("{mistake:?}")] {
            assert!(!shown.contains("hunter"), "{shown}");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((place, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text).replace("hunter", "");
    let _ = fuzzing::url(&text);
    let mut place = usize::from(*place) % (text.len() + 1);
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    let (before, after) = text.split_at(place);
    assert_hides(&format!("{before}{PASSWORD}{after}"));
    for form in ["redis", "valkey-cluster", "redis-sentinel"] {
        let query = match form {
            "redis-sentinel" => "?sentinelServiceName=main",
            _ => "",
        };
        assert_hides(&format!("{form}://user{PASSWORD}{text}"));
        assert_hides(&format!("{form}://user:hunter2@{text}"));
        assert_hides(&format!("{form}://one/{text}{PASSWORD}"));

        // Every byte written as URLs have it.
        let password: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let url = format!("{form}://user:{password}@one:7001/{query}");
        let (hosts, user, password) = fuzzing::url(&url).expect("a usable URL");
        assert_eq!(hosts, ["one:7001"]);
        assert_eq!(user.as_deref(), Some("user"));
        assert_eq!(password.unwrap_or_default(), text);
    }
});
