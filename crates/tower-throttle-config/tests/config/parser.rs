//! Texts that are no file, and texts that look odd and are one.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use tower_throttle_config::Config;

const SMALL: &str = "version = 1\n[[policy]]\nname = \"burst\"\nquota = \"10 per second\"\n";

fn found(text: &str) -> String {
    Config::from_toml(text).expect_err("mistakes").to_string()
}

/// A file of this process in the folder for temporary files, removed at the end.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        let name = format!("tower-throttle-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content).expect("a file");
        Self(path)
    }

    fn errors(&self) -> String {
        let errors = Config::from_path(&self.0).expect_err("mistakes");
        let errors = errors.to_string();
        errors.replace(&self.0.display().to_string(), "FILE")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_is_at_most_one_mebibyte() {
    let comment = "#".repeat((1 << 20) - SMALL.len() - 1);
    let largest = format!("{SMALL}{comment}\n");
    assert_eq!(largest.len(), 1 << 20);
    Config::from_toml(&largest).expect("not too large");
    let file = Temporary::new("largest", largest.as_bytes());
    Config::from_path(&file.0).expect("not too large");

    let larger = format!("{largest}\n");
    let message = "more than 1 MiB; split the file, or name a file in `[lists]` (file-too-large)";
    assert_eq!(found(&larger), message);
    let file = Temporary::new("larger", larger.as_bytes());
    assert_eq!(file.errors(), format!("FILE: {message}"));
    // The same, however large it is, and whatever is in it.
    let file = Temporary::new("ten", &vec![0xff; 10 << 20]);
    assert_eq!(file.errors(), format!("FILE: {message}"));
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_their_line() {
    let name = b"version = 1\n\n[[policy]]\nname = \"caf\xe9\"\n";
    for (name, bytes, place) in [
        ("latin", &b"version = 1\n# caf\xe9\n"[..], "2:6"),
        ("utf16", &[0xff, 0xfe, b'v', 0], "1:1"),
        ("marked", b"\xef\xbb\xbf# caf\xe9\n", "1:6"),
        ("name", name, "4:12"),
    ] {
        let message = "this is not UTF-8; save the file as UTF-8 (file-not-utf8)";
        let errors = Temporary::new(name, bytes).errors();
        assert_eq!(errors, format!("FILE:{place}: {message}"));
    }
}

/// Returns how long this thread has computed. Where Linux does not tell, how long it has lived.
fn computed() -> Duration {
    thread_local!(static START: Instant = Instant::now());

    let counted = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let counted = counted.and_then(|counted| counted.split(' ').next()?.parse().ok());
    counted.map_or_else(|| START.with(Instant::elapsed), Duration::from_nanos)
}

/// Checks a file. Returns how long that took.
fn time_to_find(mistakes: usize, text: &str) -> Duration {
    let start = computed();
    let errors = Config::from_toml(text).err();
    let problems = errors.as_ref().map_or(0, |errors| errors.problems().len());
    let length = errors.map_or(0, |errors| errors.to_string().len());
    assert!(length < 1_000 * mistakes.max(1), "{length} bytes");
    assert_eq!(problems, mistakes);
    computed().saturating_sub(start)
}

/// Returns the mistakes of a file with so many parts, and its text.
type File<'a> = dyn Fn(usize) -> (usize, String) + 'a;

/// Time that other threads use does not count.
#[test]
fn large_files_take_time_in_proportion_to_their_length() {
    const TIMES_LARGER: u32 = 8;

    let many = |one: fn(usize) -> String, count| (0..count).map(one).collect::<String>();
    let unknown_fields = |count| {
        let fields = many(|number| format!("k{number:x} = 1\n"), count);
        (count, format!("{SMALL}{fields}"))
    };
    let policies = |count| {
        let policy = |number| format!("[[policy]]\nname = \"{number:x}\"\nquota = \"1 per day\"\n");
        (0, format!("version = 1\n{}", many(policy, count)))
    };
    let one_line = |count| {
        let line = many(|number| format!("{number},"), count);
        (
            0,
            format!("{SMALL}[lists]\nallow_keys = {{ burst = [{line}] }}\n"),
        )
    };
    let unknown_names = |count| {
        let (_, known) = policies(1_000);
        let names = many(|_| "\"unknown\",".to_owned(), count);
        (count, format!("{known}[layer.api]\npolicies = [{names}]\n"))
    };
    let files: [(&str, &File<'_>, usize); 4] = [
        ("unknown fields", &unknown_fields, 2_500),
        ("policies", &policies, 1_250),
        ("one line", &one_line, 8_000),
        ("unknown names", &unknown_names, 50),
    ];
    for (name, file, count) in files {
        let [(few, small), (many, large)] = [count, count * TIMES_LARGER as usize].map(file);
        // The first file also fills the caches.
        let [_, of_small] = [(); 2].map(|()| time_to_find(few, &small));
        let of_large = time_to_find(many, &large);
        // It would be eight times as much if each part were compared with all.
        let most = of_small * TIMES_LARGER * 3;
        assert!(of_large < most, "{name}: {of_small:?}, {of_large:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    for path in [PathBuf::from("no/such/limits.toml"), std::env::temp_dir()] {
        let errors = Config::from_path(&path).expect_err("no file").to_string();
        let start = format!("{}: cannot read the file (", path.display());
        let end = "); correct the path, or make it readable (file-unreadable)";
        assert!(
            errors.starts_with(&start) && errors.ends_with(end),
            "{errors}"
        );
    }
}

#[test]
fn every_start_of_a_file_is_read_or_reported() {
    let files = crate::good::good_files();
    let texts = files.iter().map(fs::read_to_string);
    for text in texts.map(|text| text.expect("a text")) {
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            if let Err(errors) = Config::from_toml(&text[..end]) {
                assert!(!errors.problems().is_empty());
            }
        }
    }
}

#[test]
fn values_in_each_other_are_bounded() {
    for (start, end) in [("[", "]"), ("{ a = ", " }")] {
        for deep in [20, 31, 40, 79, 90, 10_000] {
            let value = format!("{}1{}", start.repeat(deep), end.repeat(deep));
            let text = format!("{SMALL}key = {value}\n");
            assert!(!found(&text).is_empty());
        }
    }
    let dotted = format!("{{ {}a = ", "a.".repeat(75));
    let value = format!("{}1{}", dotted.repeat(75), " }".repeat(75));
    let text = format!("{SMALL}when = {value}\n");
    let found_in = found(&text);
    assert!(found_in.ends_with("(file-too-deep)"), "{found_in}");
    let names = "a.".repeat(10_000);
    assert!(!found(&format!("{SMALL}{names}a = 1\n")).is_empty());
    assert!(!found(&format!("{SMALL}[{names}a]\n")).is_empty());
}

/// To compare each name of a file with each policy took 35 seconds.
#[test]
fn the_first_hundred_mistakes_have_proposals() {
    let names = "\"burts\",".repeat(1_000);
    let text = format!("{SMALL}[layer.api]\npolicies = [{names}]\n");
    let errors = Config::from_toml(&text).expect_err("mistakes");
    let messages = errors.problems().iter().map(|problem| problem.message());
    let proposals = messages.filter(|message| message.contains("did you mean \"burst\"?"));
    assert_eq!((proposals.count(), errors.problems().len()), (100, 1_000));
}

/// Pieces of files, which are put together at random.
fn piece() -> impl Strategy<Value = String> {
    #[rustfmt::skip]
    let known = [
        "version = 1\n", "[[policy]]\n", "[store]\n", "[layer.api]\n", "[lists]\n", "name = ",
        "quota = ", "key = ", "when = ", "cost = ", "mode = ", "settle_by = ", "redis = ",
        "\"10 per second\"", "\"peer\"", "\"header:a\"", "\"${A}\"", "\"${\"", "1", "-1",
        "1.5", "true", "[", "]", "{", "}", ", ", "\n", "\r\n", "\u{feff}", "\0", "\"", "'",
        "\"\"\"", "all = ", "not = ", "1979-05-27", "99999999999999999999", "0x7f", "é", "= ",
        ".",
    ];
    prop_oneof![
        4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

/// Texts, bytes, and a good file of which one byte is another.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let changed = any::<(prop::sample::Index, u8)>().prop_map(|(place, byte)| {
        let mut bytes = include_bytes!("good/everything.toml").to_vec();
        *place.get_mut(&mut bytes) = byte;
        bytes
    });
    let pieces = proptest::collection::vec(piece(), 0..40);
    prop_oneof![
        pieces.prop_map(|pieces| pieces.concat().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..200),
        changed,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn no_content_panics(content in content()) {
        let file = Temporary::new("content", &content);
        if let Err(errors) = Config::from_path(&file.0) {
            prop_assert!(!errors.problems().is_empty());
            let lines = String::from_utf8_lossy(&content).lines().count().max(1);
            for problem in errors.problems() {
                prop_assert!(problem.line().is_none_or(|line| (1..=lines + 1).contains(&line)));
            }
        }
    }
}
