// Elements, words and calls. What others wrote is only ever a text node or an attribute of text.

const base = new URL(".", import.meta.url);
const byId = (id) => document.getElementById(id);

// Adds classes, attributes and listeners if there are any, and children.
function fill(node, classes, parts) {
  const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...parts.flat(9).filter((part) => part != null && part !== false));
  return node;
}

const set = (node, attributes) => fill(node, [], [attributes]);

const makeIn = (namespace) => (selector, ...parts) => {
  const [name, ...classes] = selector.split(".");
  return fill(document.createElementNS(namespace, name), classes, parts);
};

// Makes an element: `el("p.note", { id: "it" }, "text")`.
const el = makeIn("http://www.w3.org/1999/xhtml");
const svg = makeIn("http://www.w3.org/2000/svg");

// `action`: which of the buttons of an item it is.
const button = (text, click, action, label) =>
  el("button.small", { type: "button", click, "data-action": action, "aria-label": label }, text);

// Characters that turn the direction of a text also turn what is around it, and control characters
// are not seen.
const HIDDEN = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

function short(text, most = 40) {
  const letters = [...text.replace(HIDDEN, "\ufffd")];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
}

// Shows a text that an operator or a client chose: on its own, whatever its direction.
const foreign = (text, most = 60) => el("bdi", { title: text.length > most ? text : null }, short(text, most));
const fingerprint = (text) => el("code", { title: text }, short(text, 11));
const badge = (kind, text) => el(`span.badge.${kind}`, text);

// Sets a text only if it is another: selections and screen readers notice each change.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Says a result to screen readers.
const say = (text) => setText(byId("said"), text);

// Words

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (value) => number.format(value);
const share = (part, whole) => `${count(whole ? 100 * part / whole : 0)} %`;
const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

const UNITS = [["day", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

// Writes a duration with its two largest units, rounded up to seconds: `4 min 10 s`.
function duration(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  const amounts = UNITS.slice(first, first + 2).map(([name, size], index) =>
    [name, Math.floor((index ? seconds % UNITS[first][1] : seconds) / size)]);
  return amounts.filter(([, amount]) => amount)
    .map(([name, amount]) => `${count(amount)} ${name === "day" && amount > 1 ? "days" : name}`).join(" ");
}

// The clock of the server, which all times are of.
let clockOffset = 0;
const now = () => Date.now() + clockOffset;

const FORMS = {
  ago: (ms) => ms > -1000 ? "now" : `${duration(-ms - 999)} ago`,
  in: (ms) => ms > 0 ? `in ${duration(ms)}` : "now",
};

// Shows a time in words that stay true.
function when(at, form) {
  const date = new Date(at);
  const node = el("time", { datetime: date.toJSON(), title: date.toLocaleString() });
  [node.at, node.form] = [at, form];
  return keepTrue(node);
}

function keepTrue(node) {
  setText(node, FORMS[node.form](node.at - now()));
  return node;
}

function keepTimesTrue() {
  for (const node of document.getElementsByTagName("time")) if (node.form) keepTrue(node);
}

// Calls

// Sends one call. The message of an error is for people.
async function send(path, body) {
  const post = body && {
    method: "POST",
    headers: { "content-type": "application/json", "x-tower-throttle": "1" },
    body: JSON.stringify(body),
  };
  const signal = AbortSignal.timeout(30_000);
  const response = await fetch(new URL(path, base), { cache: "no-store", signal, ...post }).catch(() => {
    throw new Error("The application does not answer. Try again in a moment.");
  });
  const content = await response.json().catch(() => null);
  if (response.ok && content) return content;
  const wait = Number(response.headers.get("retry-after"));
  const what = content?.detail ?? `the application answered with status ${response.status}`;
  const error = new Error(`${what}${wait ? `; try again in ${duration(wait * 1000)}` : ""}`);
  error.status = response.status;
  throw error;
}

// Returns a function that does the work once at a time, and again if it was asked for meanwhile. A
// hidden page does nothing.
function once(work) {
  let isBusy = false;
  let isDue = false;
  return async function run() {
    isDue = isBusy;
    if (isBusy || document.hidden) return;
    isBusy = true;
    await work().finally(() => { isBusy = false; });
    if (isDue) run();
  };
}

// Calls the API. A session that ended leads to the form for the token.
async function call(path, body) {
  try {
    return await send(`api/v1/${path}`, body);
  } catch (error) {
    if (error.status === 401) location.replace(location.pathname);
    throw error;
  }
}

// Lists

// Returns items by their keys. Layers and limiters may have one name: equal keys are told apart.
function byKey(items, keyOf) {
  const all = new Map();
  for (const item of items) {
    const key = keyOf(item);
    all.set(all.has(key) ? `${key} ${all.size}` : key, item);
  }
  return all;
}

const kept = new WeakMap();

// Shows one node for each item. A node stays as long as its item is the same, and the focus stays
// where it is in a node that is made again.
function sync(parent, items, keyOf, make) {
  const former = kept.get(parent) ?? new Map();
  const present = new Map();
  for (const [key, item] of byKey(items, keyOf)) {
    const content = JSON.stringify(item);
    const old = former.get(key);
    present.set(key, old?.content === content ? old : { content, node: make(item) });
  }
  kept.set(parent, present);
  const nodes = [...present.values()].map(({ node }) => node);
  if (nodes.length === parent.childNodes.length && nodes.every((node, index) => parent.childNodes[index] === node)) return;
  const focused = document.activeElement;
  const [key] = [...former].find(([, { node }]) => node.contains(focused)) ?? [];
  parent.replaceChildren(...nodes);
  const again = present.get(key)?.node;
  (again?.contains(focused) ? focused : again?.querySelector(`[data-action="${CSS.escape(focused.dataset.action)}"]`))?.focus();
}

// Shows rows in the body of a table, or why there are none.
function showRows(table, items, keyOf, make, none) {
  sync(table.tBodies[0], items.length ? items : [null], (item) => item && keyOf(item), (item) =>
    item ? make(item) : el("tr.none", el("td", { colspan: table.tHead.rows[0].cells.length }, none)));
}

const head = (...parts) => el("th", { scope: "row" }, ...parts);
const cell = (...parts) => el("td", ...parts);
const numberCell = (...parts) => el("td.number", ...parts);
const small = (...parts) => el("small", ...parts);
