//! Pages of other origins can change nothing, and can read nothing.

use serde_json::json;

use crate::{
    app::{App, Options, serve_page},
    browser::Tab,
    client::ask,
    page::{css, wait_until_live},
    signing_in::{SECRET, sign_in, with_secret},
};

const CHANGE: &str = r#"{"caller":"ann","policy":"burst"}"#;

/// Starts an application, an empty tab, and another site on the port that it returns.
fn start(options: Options) -> Option<(App, Tab, u16)> {
    let tab = Tab::open()?;
    let site = serve_page("<!doctype html><title>elsewhere</title><p>hello");
    Some((App::start(options), tab, site.port()))
}

/// Tries each way in which a page can send a change to `target`, and to read from it.
fn attack(tab: &mut Tab, from: &str, target: &str) {
    tab.navigate(from);
    let tried = tab.evaluate(&format!(
        "(async () => {{
          const body = {body};
          const ways = [
            {{ mode: 'no-cors', headers: {{ 'content-type': 'text/plain' }} }},
            {{ mode: 'no-cors', headers: {{ 'content-type': 'application/x-www-form-urlencoded' }} }},
            {{ mode: 'cors', headers: {{ 'content-type': 'application/json', 'x-tower-throttle': '1' }} }},
          ];
          const read = [];
          for (const way of ways) {{
            try {{
              const response = await fetch('{target}/api/v1/reset', {{ method: 'POST', credentials: 'include', body, ...way }});
              if (response.type !== 'opaque') read.push(response.status);
            }} catch {{}}
          }}
          navigator.sendBeacon('{target}/api/v1/reset', body);
          for (const path of ['', '/', '/api/v1/status', '/api/v1/samples', '/admin.js']) {{
            try {{
              const response = await fetch('{target}' + path, {{ credentials: 'include' }});
              read.push(await response.text());
            }} catch {{}}
          }}
          return read;
        }})()",
        body = json!(CHANGE),
    ));
    assert_eq!(tried, json!([]), "{from} reads from {target}");
    // As a form: its only type that can look like JSON is text/plain.
    tab.evaluate(&format!(
        "(() => {{
          const form = document.createElement('form');
          Object.assign(form, {{ method: 'post', enctype: 'text/plain', action: '{target}/api/v1/reset' }});
          const input = document.createElement('input');
          Object.assign(input, {{ name: '{{\"caller\":\"ann\",\"policy\":\"burst\",\"x\":\"', value: '\"}}' }});
          form.append(input);
          document.body.append(form);
          setTimeout(() => form.submit());
        }})()",
    ));
    tab.wait_until(&format!(
        "location.href.startsWith('{target}') && document.readyState === 'complete'"
    ));
    tab.assert_is(
        "performance.getEntriesByType('navigation')[0].responseStatus",
        403,
    );
    let problem = tab.text("document.body.innerText");
    assert!(problem.contains("\"status\":403"), "{problem}");
}

#[track_caller]
fn assert_unchanged(app: &App) {
    let statuses = app.statuses("POST /admin/api/v1/reset");
    assert!(statuses.len() >= 3, "{statuses:?}");
    assert!(
        statuses.iter().all(|status| matches!(status, 401 | 403)),
        "{statuses:?}"
    );
    assert_eq!(app.ask("ann"), 429);
}

#[test]
fn pages_of_other_origins_change_and_read_nothing() {
    let Some((app, mut tab, port)) = start(Options::default()) else {
        return;
    };
    app.exhaust("ann");
    let own = app.address.port();
    for (from, target) in [
        (format!("127.0.0.1:{port}/"), "127.0.0.1"),
        (format!("localhost:{port}/"), "127.0.0.1"),
        (format!("127.0.0.1:{port}/"), "localhost"),
        // The same server under its other name is another origin.
        (format!("localhost:{own}/items/1"), "127.0.0.1"),
    ] {
        let target = format!("http://{target}:{own}/admin");
        attack(&mut tab, &format!("http://{from}"), &target);
        assert_unchanged(&app);
    }
    // The same change as the page sends it.
    let fields = [
        ("content-type", "application/json"),
        ("x-tower-throttle", "1"),
    ];
    let reset = "POST /admin/api/v1/reset";
    assert_eq!(ask(app.address, reset, &fields, CHANGE), 200);
    assert_eq!(app.ask("ann"), 200);
}

#[test]
fn a_session_is_of_no_use_to_another_origin() {
    let Some((app, mut tab, port)) = start(with_secret()) else {
        return;
    };
    app.exhaust("ann");
    tab.navigate(&app.admin());
    sign_in(&tab, SECRET);
    let target = format!("http://127.0.0.1:{}/admin", app.address.port());
    for host in ["127.0.0.1", "localhost"] {
        attack(&mut tab, &format!("http://{host}:{port}/"), &target);
        assert_unchanged(&app);
    }
    // The session itself still works.
    tab.navigate(&app.admin());
    wait_until_live(&tab);
}

#[test]
fn no_page_can_frame_the_admin_page() {
    let Some((app, mut tab, port)) = start(Options::default()) else {
        return;
    };
    for from in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://{}/items/1", app.address),
    ] {
        tab.navigate(&from);
        tab.evaluate(&format!(
            "new Promise((done) => {{
               const frame = document.createElement('iframe');
               frame.onload = done;
               frame.src = '{}';
               document.body.append(frame);
             }})",
            app.admin()
        ));
        // A frame that was blocked shows an error page, which is of another origin.
        tab.assert_is(
            "document.querySelector('iframe').contentDocument",
            json!(null),
        );
        tab.expect_problem("frame-ancestors");
        tab.assert_is(&format!("{} !== null", css("iframe")), true);
    }
}
