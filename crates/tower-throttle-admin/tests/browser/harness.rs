//! The harness finds what it looks for: each kind of fault is on a page of its own.

use crate::{browser::Tab, site};

const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'self' 'nonce-n'; \
    style-src 'nonce-n'; connect-src 'self'\r\n";

fn open(body: &'static str) -> Option<Tab> {
    let mut tab = Tab::open()?;
    tab.navigate(&format!("http://{}/", site::serve_with(POLICY, body)));
    Some(tab)
}

#[test]
fn a_page_without_faults_has_no_problems() {
    let body = "<!doctype html><title>a</title><p>hello<script nonce=n>console.log(1)</script>";
    let Some(mut tab) = open(body) else { return };
    assert_eq!(tab.text("document.body.innerText"), "hello");
    assert_eq!(tab.problems(), [""; 0]);
    assert_eq!(tab.overflow(), 0);
}

#[test]
fn each_kind_of_problem_is_found() {
    let body = "<!doctype html><title>a</title><p style='color: red'>hello
        <script nonce=n>
          console.error('logged');
          setTimeout(() => { throw new Error('thrown'); });
          Promise.reject(new Error('rejected'));
          fetch('http://127.0.0.1:1/').catch(() => {});
        </script><script>inline()</script>";
    let Some(mut tab) = open(body) else { return };
    for text in [
        "logged",
        "thrown",
        "rejected",
        "csp: \"style-src-attr blocked inline",
        "Applying inline style",
        "csp: \"script-src-elem blocked inline",
        "Executing inline script",
        "csp: \"connect-src blocked",
        "Connecting to",
        "Fetch API cannot load",
    ] {
        tab.expect_problem(text);
    }
    tab.navigate("about:blank");
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn a_walk_by_tab_finds_each_fault() {
    let body = "<!doctype html><title>a</title><main>
        <a href=#a>one</a> <button>two</button> <input aria-label=three> <button disabled>no</button>
        <div role=button onclick=1>mouse only</div><button tabindex=-1>left out</button>
        <details><summary>four</summary><button>closed</button></details></main>";
    let Some(mut tab) = open(body) else { return };
    assert_eq!(tab.walk_focus(), (4, vec![]));
    tab.problems();
}

#[test]
fn a_walk_by_tab_finds_an_odd_order_and_an_invisible_focus() {
    let body = "<!doctype html><title>a</title>
        <style nonce=n>nav { display: flex; flex-direction: row-reverse }
          #three:focus { outline: none }</style>
        <nav><button>one</button><button>two</button></nav>
        <main><button id=three>three</button><br><button tabindex=1>four</button>
        <button id=five>five</button>";
    let Some(tab) = open(body) else { return };
    tab.evaluate("document.getElementById('five').onfocus = (event) => event.target.blur()");
    let (count, faults) = tab.walk_focus();
    assert_eq!(count, 4);
    assert_eq!(
        faults,
        [
            r#"the focus is invisible on <button id="three">three</button>"#,
            r#"Tab misses button "five""#,
            r#"button "four" comes before all without a tabindex"#,
            r#"Tab goes back from button "one" to button "two""#,
        ]
    );
}

#[test]
fn sizes_schemes_and_scripts_can_be_chosen() {
    let body = "<!doctype html><title>a</title><p id=text>no script</p>
        <input aria-label=name><div id=wide></div>
        <script nonce=n>
          document.getElementById('text').textContent = 'script';
          document.getElementById('wide').style.cssText = 'width: 600px; height: 1px';
        </script>";
    let Some(mut tab) = open(body) else { return };
    assert_eq!(
        tab.evaluate("[innerWidth, innerHeight]"),
        serde_json::json!([1440, 900])
    );
    assert_eq!(tab.overflow(), 0);
    tab.resize(390, 800);
    assert_eq!(
        tab.evaluate("[innerWidth, innerHeight]"),
        serde_json::json!([390, 800])
    );
    assert!(tab.overflow() > 0);
    for scheme in ["dark", "light"] {
        tab.prefer(scheme);
        assert_eq!(
            tab.evaluate(&format!(
                "matchMedia('(prefers-color-scheme: {scheme})').matches"
            )),
            true
        );
    }
    assert!(tab.screenshot().starts_with(b"\x89PNG"));
    let hostile = format!("\"><img src=x>\u{202e}{}", "x".repeat(4096));
    tab.fill("document.querySelector('input')", &hostile);
    assert_eq!(
        tab.text("document.getElementById('text').textContent"),
        "script"
    );
    tab.evaluate("setTimeout(() => { document.title = 'later'; }, 20)");
    tab.wait_until("document.title === 'later'");
    tab.disable_scripts();
    tab.reload();
    assert_eq!(
        tab.text("document.getElementById('text').textContent"),
        "no script"
    );
    tab.click("document.querySelector('input')");
    assert_eq!(tab.problems(), [""; 0]);
}

/// A browser is used again, and nothing of the test before is left.
#[test]
fn a_tab_that_is_opened_again_is_as_new() {
    let body = "<!doctype html><title>a</title><p>hello<script nonce=n>
        globalThis.before = document.cookie; document.cookie = 'a=b';</script>";
    let Some(first) = open(body) else { return };
    for _ in 0..3 {
        let Some(mut tab) = open(body) else { return };
        let state = "[before, document.cookie, document.hidden, innerWidth, history.length]";
        let expected = serde_json::json!(["", "a=b", false, 1440, 2]);
        assert_eq!(tab.evaluate(state), expected);
        assert_eq!(tab.problems(), [""; 0]);
        tab.evaluate("console.error('left behind')");
        tab.resize(390, 800);
        tab.disable_scripts();
    }
    drop(first);
}
