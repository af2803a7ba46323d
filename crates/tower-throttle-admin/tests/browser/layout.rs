//! Each state of the page is in order: in both themes, on a wide and a narrow screen, and by
//! keyboard. With `TT_PICTURES`, these tests also write a picture of each.

use std::{net::SocketAddr, thread, time::Instant};

use fantoccini::key::Key;
use serde_json::json;

use crate::support::prelude::*;
use crate::{
    app::{App, Options},
    browser::{Tab, picture},
    client::ask,
    page::{self, NARROW, WIDE, button, change, css, look_up},
    signing_in::with_secret,
};

/// Requests of many callers, of which some ask too often: a few, or if pictures are wanted, for
/// five minutes and then on until this is dropped.
struct Traffic {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Traffic {
    fn start(address: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        if picture::folder().is_none() {
            (0..40).for_each(|number| send_one(address, number, 0.0));
            return Self { ends, thread: None };
        }
        let is_over = Arc::clone(&ends);
        let started = Instant::now();
        let thread = thread::spawn(move || {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                // A wave of a minute.
                let busy = (started.elapsed().as_secs_f64() / 10.0).sin();
                send_one(address, number, busy);
                thread::sleep(Duration::from_secs_f64(0.03 - 0.015 * busy));
            }
        });
        thread::sleep(Duration::from_secs(290));
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_one(address: SocketAddr, number: usize, busy: f64) {
    const TOO_OFTEN: [(&str, &str); 4] = [
        ("k-4711", "Example Inc."),
        ("k-1042", "batch import"),
        ("k-0815", "price watcher"),
        ("k-2718", "status page"),
    ];
    let often = TOO_OFTEN.get(number % 13).filter(|_| busy > -0.5);
    let new = format!("k-{number}");
    let (key, name) = often.copied().unwrap_or((&new, "new"));
    let fields = [("x-api-key", key), ("x-name", name)];
    ask(address, "GET /items/1", &fields, "");
}

/// Asserts what holds of each state.
#[track_caller]
fn assert_in_order(tab: &mut Tab, state: &str) {
    for (width, height) in [NARROW, WIDE] {
        tab.resize(width, height);
        for scheme in ["dark", "light"] {
            tab.prefer(scheme);
            assert_eq!(tab.overflow(), 0, "{state}, {width} px, {scheme}");
            assert_eq!(unreadable(tab), json!([]), "{state}, {width} px, {scheme}");
        }
        let (count, faults) = tab.walk_focus();
        assert_eq!(faults, [""; 0], "{state}, {width} px");
        assert!(count > 1, "{state}, {width} px");
    }
    assert_eq!(tab.problems(), [""; 0], "{state}");
}

/// Returns texts whose contrast to their background is below 4.5, as WCAG 2.2 AA demands.
fn unreadable(tab: &Tab) -> serde_json::Value {
    tab.evaluate(
        "(() => {
          const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
          const rgba = (color) => {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
            return [r, g, b, a / 255];
          };
          const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
          const light = (color) => {
            const [r, g, b] = color.map((value) => {
              const part = value / 255;
              return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const behind = (element) => {
            if (!element) return rgba(getComputedStyle(document.documentElement).colorScheme.includes('dark')
              && matchMedia('(prefers-color-scheme: dark)').matches ? 'rgb(18, 18, 18)' : 'white');
            const own = rgba(getComputedStyle(element).backgroundColor);
            return own[3] === 1 ? own : over(own, behind(element.parentElement));
          };
          const found = new Set();
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const element = walker.currentNode.parentElement;
            if (!walker.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
            const style = getComputedStyle(element);
            if (element.closest('svg, option, [aria-hidden=true]')) continue;
            const back = behind(element);
            const text = over(rgba(style.color), back);
            const [high, low] = [light(text), light(back)].sort((one, other) => other - one);
            const contrast = (high + 0.05) / (low + 0.05);
            if (contrast < 4.5) found.add(`${element.localName}.${element.className} ${contrast.toFixed(1)}`);
          }
          return [...found];
        })()",
    )
}

#[test]
fn the_page_is_in_order_with_traffic_a_look_up_and_a_dialog() {
    let Some((mut app, mut tab)) = page::open(Options::with_outages()) else {
        return;
    };
    assert_in_order(&mut tab, "without traffic");
    app.exhaust("k-4711");
    let traffic = Traffic::start(app.address);
    tab.wait_until("document.querySelector('#denials tbody button') !== null");
    tab.wait_until("document.querySelector('#top tbody button') !== null");
    look_up(&tab, "k-0815");
    let fields = "for=7d|reason=scraping, ticket 4712|label=price watcher";
    change(&tab, "burst", "Ban", fields);
    look_up(&tab, "header:x-api-key=k-4711");
    let fields = "quota=2 per minute, burst 10|for=1d|reason=migration, ticket 4711|\
                  label=Example Inc.";
    change(&tab, "burst", "Override", fields);
    app.exhaust("k-4711");
    tab.wait_until("document.querySelectorAll('#entries tbody button').length === 4");
    tab.wait_until("document.getElementById('result').innerText.includes('No room')");
    tab.wait_until("!document.getElementById('calls').hidden");
    assert_in_order(&mut tab, "with a look-up");
    tab.picture("admin-look-up", (1440, 960));
    tab.picture("admin-look-up-narrow", (390, 1_600));
    tab.click(&button("document.getElementById('result')", "Close"));
    assert_in_order(&mut tab, "with traffic");
    tab.picture("admin-wide", (1440, 1_270));
    tab.prefer("dark");
    tab.picture("admin-dark", (1440, 960));
    tab.prefer("light");
    tab.picture("admin-narrow", (390, 1_600));
    tab.picture("admin-narrow-whole", (390, 3_200));

    look_up(&tab, "k-4711");
    tab.click(&button(&page::card("burst"), "Ban… burst"));
    tab.wait_until("document.querySelector('dialog[open]') !== null");
    assert_in_order(&mut tab, "with a dialog");
    tab.picture("admin-dialog", WIDE);
    tab.picture("admin-dialog-narrow", NARROW);
    tab.press(Key::Escape.into());
    tab.wait_until("document.querySelector('dialog') === null");
    tab.click(&button("document.getElementById('result')", "Close"));

    app.lose_redis();
    tab.wait_until("document.querySelector('#tile-store .value').innerText.includes('No')");
    assert_in_order(&mut tab, "in an outage");
    if picture::folder().is_some() {
        thread::sleep(Duration::from_secs(20));
    }
    tab.picture("admin-outage", (1440, 1_270));
    tab.picture("admin-outage-narrow", (390, 1_600));
    drop(traffic);
}

#[test]
fn a_page_for_looking_only_has_no_buttons_of_change() {
    let only = Options {
        changes: false,
        ..Options::default()
    };
    let Some((app, mut tab)) = page::open(only) else {
        return;
    };
    app.exhaust("ann");
    look_up(&tab, "ann");
    tab.wait_until("document.querySelector('#denials tbody button') !== null");
    let names = "[...document.querySelectorAll('button, input[type=submit]')]
        .map((button) => (button.ariaLabel ?? button.textContent ?? button.value).trim())
        .filter((name) => !/^Look up/.test(name) && !['In all policies', 'Close'].includes(name))";
    tab.assert_is(names, json!([]));
    let header = page::text(&tab, "header").to_lowercase();
    assert!(header.contains("read-only"), "{header}");
    assert_in_order(&mut tab, "read-only");
    tab.resize(NARROW.0, NARROW.1);
    let is_in_sight = "[...document.querySelectorAll('#policies td.number')]
        .every((cell) => cell.getBoundingClientRect().right <= cell.closest('.scroll').getBoundingClientRect().right)";
    tab.assert_is(is_in_sight, true);
    tab.resize(WIDE.0, WIDE.1);
    tab.picture("admin-read-only", (1440, 1_270));
    tab.picture("admin-read-only-narrow", (390, 1_600));
}

#[test]
fn the_form_for_the_token_is_in_order() {
    let Some(mut tab) = Tab::open() else { return };
    let app = App::start(with_secret());
    tab.navigate(&app.admin());
    tab.wait_until(&format!("{} !== null", css("#token")));
    assert_in_order(&mut tab, "signing in");
    tab.picture("admin-login", WIDE);
    tab.picture("admin-login-narrow", NARROW);
    tab.prefer("dark");
    tab.picture("admin-login-dark", NARROW);
}
