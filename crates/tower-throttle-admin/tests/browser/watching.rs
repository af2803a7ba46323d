//! The page shows what happens while it happens.

use crate::{
    app::{App, Options},
    page,
    support::eventually,
};

#[test]
fn charts_and_counts_move_while_requests_arrive() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    let line = "document.querySelector('#traffic-chart .plot path.line.allowed').getAttribute('d')";
    let mut lines = Vec::new();
    for number in 0..3 {
        app.ask("ann");
        app.exhaust(&format!("caller {number}"));
        let before = tab.text(line);
        tab.wait_until(&format!("{line} !== {}", serde_json::json!(before)));
        lines.push(before);
    }
    tab.wait_until(
        "Math.max(...document.querySelector('#traffic-chart .plot path.line.denied').getAttribute('d')
           .match(/[\\d.]+ [\\d.]+/g).map((place) => -place.split(' ')[1]))
         > Math.min(...document.querySelector('#traffic-chart .plot path.line.denied').getAttribute('d')
           .match(/[\\d.]+ [\\d.]+/g).map((place) => -place.split(' ')[1]))",
    );
    // Redis decided, and its calls are timed.
    tab.wait_until("document.querySelector('#sources tbody tr').innerText.includes('%')");
    tab.wait_until(
        "document.querySelector('#calls-chart .plot path.line.p99')?.getAttribute('d').length > 0",
    );
    tab.wait_until("document.getElementById('tile-store').innerText.includes('Yes')");
    // The axis is as long as the history, and not five minutes from the start.
    let axis =
        "[...document.querySelectorAll('#traffic-chart .grid text')].map((one) => one.textContent)";
    tab.assert_is(&format!("{axis}.includes('1 min')"), true);
    tab.assert_is(&format!("{axis}.includes('5 min')"), false);
    // What a shadow policy would deny was not denied.
    let strict = "[...document.querySelectorAll('#policies tbody tr')]
        .find((row) => row.dataset.policy === 'strict').cells";
    tab.wait_until(&format!("Number({strict}[6].innerText) > 5"));
    assert_eq!(tab.text(&format!("{strict}[7].innerText")), "0");
    // What the table counts is what was asked.
    tab.wait_until("document.querySelector('#policies tbody tr').cells[5].innerText === '6'");
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn an_outage_of_redis_shows_and_ends() {
    let Some((mut app, mut tab)) = page::open(Options::with_outages()) else {
        return;
    };
    app.ask("ann");
    let store = "document.querySelector('#tile-store .value').innerText";
    tab.wait_until(&format!("{store}.includes('Yes')"));
    app.lose_redis();
    tab.wait_until(&format!("{store}.includes('No')"));
    app.redis.as_mut().expect("its server").run();
    eventually("Redis decides again", || {
        app.ask("bob");
        tab.evaluate(&format!("{store}.includes('Yes')")) == true
    });
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn a_page_says_that_it_is_not_live_and_connects_again() {
    let Some((app, mut tab)) = page::open(Options::default()) else {
        return;
    };
    app.exhaust("ann");
    let port = app.address.port();
    drop(app);
    tab.wait_until("document.getElementById('live').textContent.startsWith('not live')");
    let again = App::start(Options {
        port,
        ..Options::default()
    });
    page::wait_until_live(&tab);
    again.exhaust("bob");
    tab.wait_until("document.querySelector('#denials tbody code') !== null");
    // The calls in between failed, and nothing else did.
    tab.expect_problem("net::ERR_");
    assert_eq!(tab.problems(), [""; 0]);
}
