// Elements, and numbers and times in words. The server has the same words: `words.rs`.

const base = new URL(".", import.meta.url);
const byId = (id) => document.getElementById(id);

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Makes an element: `el("p.note", { id: "it" }, "text")`. Texts become text nodes.
const makeIn = (namespace) => (selector, attributes, ...children) => {
  const [name, ...classes] = selector.split(".");
  const node = set(document.createElementNS(namespace, name), attributes ?? {});
  if (classes.length) node.setAttribute("class", classes.join(" "));
  node.append(...children.flat());
  return node;
};
const el = makeIn("http://www.w3.org/1999/xhtml");
const svg = makeIn("http://www.w3.org/2000/svg");

// Sets a text only if it is another: selections and screen readers notice each change.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Says a result to screen readers.
const say = (text) => setText(byId("said"), text);

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (value) => number.format(value);

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

const FORMS = {
  ago: (ms) => ms > -1000 ? "now" : `${duration(-ms - 999)} ago`,
  in: (ms) => ms > 0 ? `in ${duration(ms)}` : "now",
};

// The clock of the server, which all times are of.
let clockOffset = 0;
const now = () => Date.now() + clockOffset;

function keepTrue(node) {
  const at = Number(node.dataset.at);
  node.title = new Date(at).toLocaleString();
  setText(node, FORMS[node.dataset.form](at - now()));
}
