#![allow(clippy::expect_used, clippy::indexing_slicing)]

use http::{Request, header::HOST};
use proptest::prelude::*;

use super::{
    Condition, Finding, HeaderCondition, HostPattern, Matcher, PathPattern, method, parse_method,
    path,
};
use tower_throttle::RequestHead;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).expect("a pattern")
}

fn path_is(patterns: &[&str], path: &str) -> Finding {
    let patterns: Vec<_> = patterns.iter().map(|text| pattern(text)).collect();
    path::find(&patterns, path)
}

/// The model below has the wildcards.
#[test]
fn patterns_match_whole_paths() {
    for (text, path, matches) in [
        ("/a", "/a/", true),
        ("/a/", "/a", true),
        ("/a", "/ab", false),
        ("/a", "/A", false),
        ("/a/**", "/a", true),
        ("/a/**", "/ab", false),
        ("/**/a/*/b/**", "/x/a/a/b/b/y", true),
        ("/café/a.b", "/caf%C3%A9/a.b", true),
        ("/caf%c3%a9", "/caf%C3%A9", true),
        ("/a+b@c", "/a+b@c", true),
    ] {
        assert_eq!(path_is(&[text], path), Some(matches), "{text} {path}");
    }
    assert_eq!(path_is(&["/a", "/b/*"], "/b/c"), Some(true));
}

/// Spellings that some server or proxy reads as `/login`.
const TRICKS: [&str; 3] = [
    r"//login /login// ///login /./login /login/. /x/../login /../login /login/.. /%6cogin
/%6Cogin /log%69n /%2flogin /login%2F /x%2f..%2flogin /%2e/login /x/%2e%2e/login
/%252e/login /%256cogin /login;a=1 /login%3b /x\..\login /%5clogin /login%00
/login%c0%af /login% /login%2",
    // A proxy that decodes the path before it sends it on ends it there.
    "/login%20 /login%3F /login%23x /x%20y/login",
    // Windows opens `login` for it.
    "/login. /login./",
];

#[test]
fn a_trick_gets_past_no_limit() {
    for trick in TRICKS.into_iter().flat_map(str::split_whitespace) {
        assert_eq!(path_is(&["/login"], trick), None, "{trick}");
        assert_eq!(path_is(&["/other"], trick), None, "{trick}");
    }
    // A target may have no path.
    for path in ["", "*"] {
        assert_eq!(path_is(&["/**"], path), None);
    }
    // What `Uri` lets through reaches the matcher; a limit on all but one path holds, too.
    let tricks = "/health/../login /health/%2e%2e/login /health;/../login /health%2f..%2flogin";
    for trick in tricks.split(' ') {
        let request = Request::get(trick).body(()).expect("a request");
        let health = Matcher(vec![Condition::Path(vec![pattern("/health/**")])]);
        let others = Matcher(vec![Condition::Not(health.clone())]);
        let head = RequestHead::from(&request);
        assert!(others.applies(&head) && health.applies(&head), "{trick}");
    }
}

/// The list is in the guide.
#[test]
fn a_path_that_a_server_shortens_needs_a_pattern_of_its_own() {
    let listed = [
        "/login/**",
        "/login.json/**",
        "/login.php/**",
        "/index.php/login/**",
    ];
    for path in ["/login.json", "/login.php/extra", "/index.php/login"] {
        assert_eq!(path_is(&["/login"], path), Some(false), "{path}");
        assert_eq!(path_is(&listed, path), Some(true), "{path}");
    }
    assert_eq!(path_is(&listed, "/login"), Some(true));
}

#[test]
fn patterns_that_nothing_could_match_are_errors() {
    for (texts, says) in [
        ("login", "write \"/login\""),
        ("", "write \"/\""),
        ("/a?b=c", "leave it out"),
        ("/a//b|/a/../b|/%61|/a;b|/a b|/a./b", "more than one way"),
        ("/*.png|/a/***", "`*` is a whole segment"),
    ] {
        for text in texts.split('|') {
            let error = PathPattern::parse(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
    let no_names = "|*|*.127.0.0.1|a.*.example|https://example.com|example.com/a|bücher.example";
    for (texts, says) in [
        ("example.com:80|[::1]:80", "leave it out"),
        (no_names, "not a host name"),
    ] {
        for text in texts.split('|') {
            let error = HostPattern::parse(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}

/// Matches by trying everything.
fn naive(pattern: &[&str], path: &[&str]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ["**", rest @ ..] => (0..=path.len()).any(|taken| naive(rest, &path[taken..])),
        [first, rest @ ..] => match path {
            [segment, others @ ..] => (first == &"*" || first == segment) && naive(rest, others),
            [] => false,
        },
    }
}

fn segments(text: &str) -> Vec<&str> {
    text.split('/')
        .filter(|segment| !segment.is_empty())
        .collect()
}

proptest! {
    #[test]
    fn matching_agrees_with_a_naive_model(
        pattern_of in "(/(a|b|\\*|\\*\\*)){0,7}/?",
        path in "/((a|b|ab)/){0,9}(a|b)?",
    ) {
        let text = if pattern_of.is_empty() { "/" } else { &pattern_of };
        let expected = naive(&segments(text), &segments(&path));
        prop_assert_eq!(path_is(&[text], &path), expected.into());
    }

    #[test]
    fn no_path_panics_and_only_clear_ones_are_compared(path in "[/%.a-c0-9;\\\\é ]{0,20}|.{0,30}") {
        let finding = path_is(&["/a/**"], &path);
        let is_clear = path.starts_with('/')
            && !path.contains(['\\', ';', '%'])
            && !path.contains(char::is_control)
            && !path.contains(' ')
            && !path.split('/').any(|segment| segment.ends_with('.'))
            && !path.contains("//");
        if is_clear {
            prop_assert_eq!(finding, naive(&["a", "**"], &segments(&path)).into());
        } else if !path.contains('%') {
            prop_assert!(finding.is_none() || !path.starts_with('/') || path.contains(char::is_control), "{}", path);
        }
    }
}

/// Trying each `**` at each place would not end before the sun does.
#[test]
fn many_wildcards_do_not_slow_a_long_path_down() {
    let text = "/**/a".repeat(30) + "/b";
    let path = "/a".repeat(500_000);
    assert_eq!(path_is(&[&text], &path), Some(false));
}

fn host_is(patterns: &[&str], target: &str, fields: &[&str]) -> Finding {
    let mut request = Request::get(target);
    for field in fields {
        request = request.header(HOST, *field);
    }
    let request = request.body(()).expect("a request");
    let patterns = patterns.iter().map(|text| HostPattern::parse(text));
    let patterns: Vec<_> = patterns.collect::<Result<_, _>>().expect("patterns");
    Condition::Host(patterns).find(&RequestHead::from(&request))
}

#[test]
fn hosts_are_compared_as_dns_does() {
    for (text, field, matches) in [
        ("example.com", "example.com", true),
        ("example.com", "EXAMPLE.com", true),
        ("Example.COM", "example.com", true),
        ("example.com", "example.com:8443", true),
        ("example.com", "example.com:", true),
        ("example.com", "example.com.", true),
        ("example.com.", "example.com:80", true),
        ("example.com", "www.example.com", false),
        ("example.com", "notexample.com", false),
        ("*.example.com", "www.example.com", true),
        ("*.example.com", "A.B.example.com.:1", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", "notexample.com", false),
        ("127.0.0.1", "127.0.0.1:80", true),
        ("127.0.0.1", "127.0.0.1.", true),
        ("127.0.0.1", "127.0.0.1.:80", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("[::1]", "[::1]:80", true),
        ("::1", "[0:0::1]", true),
        ("::1", "[::2]", false),
        ("127.0.0.1", "[::ffff:127.0.0.1]", true),
        ("localhost", "127.0.0.1", false),
    ] {
        let found = host_is(&[text], "/", &[field]);
        assert_eq!(found, Some(matches), "{text} {field}");
        let target = format!("http://user:word@{field}/");
        if target.parse::<http::Uri>().is_ok() {
            let found = host_is(&[text], &target, &[]);
            assert_eq!(found, Some(matches), "{text} {target}");
        }
    }
}

#[test]
fn a_host_that_is_named_in_two_ways_is_unclear() {
    let unclear = "|user@example.com|example.com/|example.com:80:80|example.com:http|\
                   example%2ecom|exa mple.com|example..com|[::1|[::1]x|[fe80::1%25eth0]|::1";
    let unclear = unclear.split('|').map(|field| ("/", vec![field]));
    for (target, fields) in unclear.chain([
        ("/", vec![]),
        ("/", vec!["example.com", "other.example"]),
        ("http://other.example/", vec!["example.com"]),
        ("http://example.com/", vec!["other.example"]),
    ]) {
        let finding = host_is(&["example.com", "::1"], target, &fields);
        assert_eq!(finding, None, "{target} {fields:?}");
    }
    for fields in [&["example.com"][..], &["EXAMPLE.com:80", "example.com."]] {
        let finding = host_is(&["example.com"], "http://example.com:8080/", fields);
        assert_eq!(finding, Some(true), "{fields:?}");
    }
}

#[test]
fn a_limit_on_get_includes_head() {
    let methods = |names: &[&str]| -> Vec<_> {
        let methods = names.iter().map(|name| parse_method(name));
        methods.collect::<Result<_, _>>().expect("methods")
    };
    let (get, writes) = (methods(&["GET"]), methods(&["POST", "PURGE"]));
    for (method, is_get, is_write) in [
        ("GET", Some(true), Some(false)),
        ("HEAD", Some(true), Some(false)),
        ("POST", Some(false), Some(true)),
        ("PURGE", Some(false), Some(true)),
        ("PUT", Some(false), Some(false)),
        // Some servers read these in upper case.
        ("get", None, Some(false)),
        ("Head", None, Some(false)),
        ("post", Some(false), None),
        ("pURGE", Some(false), None),
    ] {
        let method = method.parse().expect("a method");
        let find = |methods| method::find(methods, &method);
        assert_eq!((find(&get), find(&writes)), (is_get, is_write), "{method}");
    }
    let error = parse_method("get").expect_err("lower case");
    assert_eq!(error, "no method \"get\"; did you mean \"GET\"?");
    assert!(parse_method("GET /").is_err());
}

#[test]
fn header_fields_are_compared_whole() {
    let one_of = vec!["free".to_owned(), "trial".to_owned()];
    for (values, fields, finding) in [
        (None, &["x"][..], Some(true)),
        (None, &[], Some(false)),
        (Some(&one_of), &["free"], Some(true)),
        (Some(&one_of), &[" trial "], Some(true)),
        (Some(&one_of), &["Free"], Some(false)),
        (Some(&one_of), &["free, paid"], Some(false)),
        (Some(&one_of), &[], Some(false)),
        (Some(&one_of), &["free", "trial"], Some(true)),
        (Some(&one_of), &["paid", "free"], None),
        (Some(&one_of), &["paid", "other"], Some(false)),
    ] {
        let (name, values) = (http::HeaderName::from_static("x-plan"), values.cloned());
        let fields = fields
            .iter()
            .map(|field| (name.clone(), field.parse().expect("a value")));
        let fields = fields.collect();
        let found = HeaderCondition { name, values }.find(&fields);
        assert_eq!(found, finding, "{fields:?}");
    }
}

#[test]
fn unclear_is_neither_a_condition_nor_its_opposite() {
    let request = Request::get("//login").body(()).expect("a request");
    let head = RequestHead::from(&request);
    let login = || Condition::Path(vec![pattern("/login")]);
    let post = || Condition::Method(vec![http::Method::POST]);
    let not = |conditions| Condition::Not(Matcher(conditions));
    for (conditions, applies) in [
        (vec![], true),
        (vec![login()], true),
        (vec![not(vec![login()])], true),
        (vec![login(), post()], false),
        (vec![post(), login()], false),
        (vec![not(vec![post()])], true),
        // Not both: the method alone decides.
        (vec![not(vec![login(), post()])], true),
        (vec![not(vec![])], false),
    ] {
        let matcher = Matcher(conditions);
        assert_eq!(matcher.applies(&head), applies, "{head:?}");
    }
}
