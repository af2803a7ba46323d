//! The way of the focus through a page, by the Tab key.

use fantoccini::key::Key;
use serde_json::Value;

use super::Tab;

/// More than a page has controls.
const MOST: usize = 300;

/// Describes the focused element, and numbers it in the order of the first visits.
const FOCUSED: &str = "(() => {
  const element = document.activeElement;
  if (!element || element === document.body || element === document.documentElement) return null;
  globalThis.focusWay ??= [];
  const seen = globalThis.focusWay.indexOf(element);
  if (seen < 0) globalThis.focusWay.push(element);
  const style = getComputedStyle(element);
  return { seen, isMarked: style.outlineStyle !== 'none' || style.boxShadow !== 'none' };
})()";

/// Lists the controls that the Tab key missed, and those that it reached in an odd order: by a
/// `tabindex`, above the one before, or in its row and to the left.
const FAULTS: &str = "(() => {
  const way = globalThis.focusWay ?? [];
  delete globalThis.focusWay;
  const show = (element) => {
    const name = element.ariaLabel || element.textContent.trim() || element.name || element.id;
    return `${element.localName} \"${name.slice(0, 40)}\"`;
  };
  const controls = [...(document.querySelector('dialog:modal') ?? document).querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex]')];
  const reachable = (element) => !element.disabled && element.type !== 'hidden'
    && element.getAttribute('tabindex') !== '-1' && !element.closest('[inert]')
    && element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0
    && !(element.type === 'radio' && way.some((other) => other.type === 'radio' && other.name === element.name));
  // A list that changes has another element of the same name.
  const names = new Set(way.map(show));
  const faults = controls.filter((element) => reachable(element) && !names.has(show(element)))
    .map((element) => `Tab misses ${show(element)}`);
  faults.push(...way.filter((element) => element.tabIndex > 0)
    .map((element) => `${show(element)} comes before all without a tabindex`));
  // The walk may begin anywhere.
  const present = way.filter((element) => element.isConnected);
  const first = present.findIndex((element) => present.every((other) =>
    other === element || element.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING));
  const ordered = [...present.slice(first), ...present.slice(0, first)];
  const group = (element) => element.closest('form, tr, article, section, header, footer, nav, li, main, body');
  ordered.slice(1).forEach((element, index) => {
    const before = ordered[index];
    if (group(element) !== group(before)) return;
    const [one, other] = [before, element].map((each) => each.getBoundingClientRect());
    // To the right is another column.
    const isAbove = other.bottom <= one.top && other.left < one.right;
    const isLeft = other.right <= one.left && other.top < one.bottom && other.bottom > one.top;
    if (isAbove || isLeft) faults.push(`Tab goes back from ${show(before)} to ${show(element)}`);
  });
  return { count: way.length, faults };
})()";

impl Tab {
    /// Presses Tab until the focus has been everywhere. Returns how many elements it visited, and
    /// the faults: controls that it misses, an order that differs from the layout, and elements
    /// that do not show that they have the focus.
    #[track_caller]
    pub(crate) fn walk_focus(&self) -> (usize, Vec<String>) {
        let mut faults = Vec::new();
        let mut outside = 0;
        for _ in 0..MOST {
            self.press(Key::Tab.into());
            let focused = self.evaluate(FOCUSED);
            if focused.is_null() {
                // The focus left the page. It comes back at the other end.
                outside += 1;
                if outside < 3 {
                    continue;
                }
                break;
            }
            if focused["seen"] != -1 {
                break;
            }
            if focused["isMarked"] != true {
                let element = self.text("document.activeElement.outerHTML.slice(0, 80)");
                faults.push(format!("the focus is invisible on {element}"));
            }
        }
        let found = self.evaluate(FAULTS);
        let more = found["faults"].as_array().expect("a list");
        faults.extend(more.iter().filter_map(Value::as_str).map(str::to_owned));
        let count = found["count"].as_u64().expect("a number");
        assert!(
            (count as usize) < MOST,
            "the focus never returns: the page replaces its controls"
        );
        (count as usize, faults)
    }
}
