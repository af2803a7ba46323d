const ROUTES = [
  { method: "GET", path: "/api/token-bucket", policies: ["bucket"],
    text: "Token bucket: 10 at once, then 1 per second." },
  { method: "GET", path: "/api/fixed-window", policies: ["window"],
    text: "Fixed window: 5 per 10 seconds. Your first request starts the window." },
  { method: "GET", path: "/api/stacked", policies: ["burst", "minute"],
    text: "Two policies, charged all or none: 5 at once, then 1 per second; and 20 per minute." },
  { method: "POST", path: "/api/weighted", policies: ["weight"], input: "cost",
    text: "Charges the cost: 20 at once, then 2 per second. A cost above 20 never fits (403)." },
  { method: "GET", path: "/api/leaky-bucket", policies: ["leaky"],
    text: "Leaky bucket: it holds 5 and leaks 1 per second." },
  { method: "GET", path: "/api/paced", policies: ["paced"], atOnce: true,
    text: "Leaky bucket as a queue: 2 per second, evenly spaced; up to 10 more requests wait." },
  { method: "GET", path: "/api/sliding-window", policies: ["sliding"],
    text: "Sliding window: 10 in any 10 seconds, estimated from two counters." },
  { method: "GET", path: "/api/sliding-log", policies: ["log"],
    text: "Sliding log: 5 in any 10 seconds, counted exactly." },
  { method: "GET", path: "/api/concurrency", policies: ["in-flight"], atOnce: true,
    text: "Concurrency: 2 requests in flight. Each response takes 5 seconds." },
  { method: "POST", path: "/api/login", policies: ["wrong-passwords"], input: "password",
    text: "Wrong passwords count: 5 a minute. Right ones are free." },
  { method: "POST", path: "/api/tokens", policies: ["tokens"],
    text: "A stream of 10 tokens. It holds 40 while it lasts, and is charged what it used." },
  { method: "GET", path: "/health", policies: [],
    text: "No limit." },
];
// Browsers open six connections to a host; one stays free for polling.
const AT_ONCE = 5;
const POLL_EVERY_MS = 500;
const COUNT_DOWN_EVERY_MS = 100;

const byId = (id) => document.getElementById(id);

/** Makes an element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    key.includes("-") || key === "role" ? made.setAttribute(key, value) : made[key] = value;
  }
  made.append(...children);
  return made;
}

function setText(node, text) {
  // Screen readers announce each change.
  if (node.textContent !== text) node.textContent = text;
}

function headers() {
  const key = byId("api-key").value;
  return key ? { "x-api-key": key } : {};
}

// What is left

const meters = {};

function meter(policy) {
  const bar = element("i");
  const left = element("b", {}, "…");
  const reset = element("small", {}, "\u00a0");
  const trough = element("div", {
    className: "trough", role: "meter", "aria-label": `Left in policy ${policy}`, "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": "0",
  }, bar);
  meters[policy] = { bar, left, reset, trough };
  return element("div", { className: "meter" },
    element("div", { className: "meter-label" }, element("code", {}, policy), left),
    trough, reset);
}

function showLeft({ store, policies }) {
  setText(byId("store"), store);
  for (const { name, limit, remaining, reset_after_ms } of policies) {
    const { bar, left, reset, trough } = meters[name];
    bar.style.width = `${100 * remaining / limit}%`;
    left.textContent = `${remaining} of ${limit} left`;
    // A permit expires at the latest then, and comes back sooner when its response ends.
    const when = name === "in-flight" ? "at the latest in" : "in";
    reset.textContent = reset_after_ms > 0 ? `full again ${when} ${(reset_after_ms / 1000).toFixed(1)} s` : "full";
    trough.classList.toggle("low", remaining <= limit / 4);
    trough.setAttribute("aria-valuemax", limit);
    trough.setAttribute("aria-valuenow", remaining);
    trough.setAttribute("aria-valuetext", left.textContent);
  }
}

let polls = 0;
async function poll() {
  const number = ++polls;
  let problem = "";
  try {
    const response = await fetch("/api/remaining", { headers: headers(), cache: "no-store" });
    const body = await response.json();
    if (number !== polls) return;
    if (!response.ok) throw new Error(body.error);
    showLeft(body);
  } catch (error) {
    if (number !== polls) return;
    problem = `Cannot read the buckets (${error.message}); retrying.`;
  }
  setText(byId("view"), problem);
  byId("routes").classList.toggle("stale", problem !== "");
}

// Cards

/** The card to keep on screen: the one pressed last, until the user scrolls. */
let followed;
for (const event of ["wheel", "touchmove"]) {
  addEventListener(event, () => { followed = undefined; }, { passive: true });
}

function reveal(card) {
  if (followed === card) card.panel.scrollIntoView({ block: "nearest" });
}

async function sendOne(route, card) {
  const show = card.sent();
  reveal(card);
  const response = await request(route);
  show(response);
  reveal(card);
  return response;
}

function summaryOf(responses, withTimes) {
  if (responses.length < 2) return "";
  const times = new Map();
  for (const { status, ms } of responses) times.set(status, [...(times.get(status) ?? []), ms]);
  const after = (all) => withTimes ? ` after ${all.sort((one, other) => one - other).join(", ")} ms` : "";
  return [...times].map(([status, all]) => `${all.length} × ${status}${after(all)}`).join("; ");
}

/** Runs what a button does, once at a time, and sums up the responses. */
async function press(button, card, send, withTimes) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  followed = card;
  card.setBusy(true);
  card.summarize("");
  const responses = await send();
  card.summarize(summaryOf(responses, withTimes));
  card.setBusy(false);
  button.removeAttribute("aria-disabled");
  reveal(card);
  poll();
}

async function sendInTurn(route, card) {
  const count = byId("requests").valueAsNumber;
  const responses = [];
  while (responses.length < count && responses.at(-1)?.kind !== "failed") {
    responses.push(await sendOne(route, card));
  }
  return responses;
}

for (const route of ROUTES) {
  const name = `${route.method} ${route.path}`;
  const card = responsePanel(name);
  const button = (text, send, withTimes) => {
    const made = element("button", { type: "button", "aria-label": `${text}: ${name}` }, text);
    made.addEventListener("click", () => {
      const inputs = route.input ? ["requests", route.input] : ["requests"];
      if (inputs.every((id) => byId(id).reportValidity())) press(made, card, send, withTimes);
    });
    return made;
  };
  const buttons = [button("Send", () => sendInTurn(route, card), false)];
  if (route.atOnce) {
    const sendAtOnce = () => Promise.all(Array.from({ length: AT_ONCE }, () => sendOne(route, card)));
    buttons.push(button(`Send ${AT_ONCE} at once`, sendAtOnce, true));
  }
  byId("routes").append(element("li", { className: "card" },
    element("div", {}, element("h3", {}, name), element("p", {}, route.text)),
    element("div", {}, ...route.policies.map(meter)),
    element("div", { className: "buttons" }, ...buttons),
    card.panel));
  setInterval(card.countDown, COUNT_DOWN_EVERY_MS);
}

// The server put this into the page: the first paint shows what is left.
const start = parse(byId("start").textContent);
if (start) showLeft(start);
setInterval(() => { if (!document.hidden) poll(); }, POLL_EVERY_MS);
byId("api-key").addEventListener("input", poll);
poll();
