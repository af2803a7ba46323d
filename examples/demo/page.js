"use strict";

const ROUTES = [
  { method: "GET", path: "/api/token-bucket", policies: ["bucket"],
    text: "A token bucket: 10 at once, then 1 per second." },
  { method: "GET", path: "/api/fixed-window", policies: ["window"],
    text: "A fixed window: 5 in each 10 seconds, which start with your first request." },
  { method: "GET", path: "/api/stacked", policies: ["burst", "minute"],
    text: "Two policies in one layer, all or none: 5 at once and 1 per second, and 20 per minute." },
  { method: "POST", path: "/api/weighted", policies: ["weight"],
    text: "Each request takes its cost out of 20, and 2 per second come back. A cost above 20 never fits: 403." },
  { method: "GET", path: "/api/leaky-bucket", policies: ["leaky"],
    text: "A leaky bucket: it holds 5, and leaks 1 per second." },
  { method: "GET", path: "/api/paced", policies: ["paced"], atOnce: true,
    text: "A leaky bucket as a queue: 2 per second, evenly, and at most 10 more are held until their turn." },
  { method: "GET", path: "/api/sliding-window", policies: ["sliding"],
    text: "A sliding window: 10 in any 10 seconds, estimated from two counters." },
  { method: "GET", path: "/api/sliding-log", policies: ["log"],
    text: "A sliding log: 5 in any 10 seconds, exactly." },
  { method: "GET", path: "/api/concurrency", policies: ["in-flight"], atOnce: true,
    text: "2 at a time, each held until its answer has ended, which takes 5 seconds." },
  { method: "GET", path: "/health", policies: [],
    text: "No limit at all." },
];
const WEIGHTED = "/api/weighted";
// Browsers open six connections to a host: one stays free for the live view.
const AT_ONCE = 5;
const MOST_ANSWERS = 100;
const VIEW_EVERY_MS = 500;

const byId = (id) => document.getElementById(id);

/** An element with its properties and children. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    key.includes("-") || key === "role" ? made.setAttribute(key, value) : made[key] = value;
  }
  made.append(...children);
  return made;
}

function headers() {
  const key = byId("api-key").value;
  return key ? { "x-api-key": key } : {};
}

// Routes

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
    element("div", { className: "meter-label" }, element("span", {}, element("code", {}, policy)), left),
    trough, reset);
}

for (const route of ROUTES) {
  const name = `${route.method} ${route.path}`;
  const button = (text, press) => {
    const made = element("button", { type: "button", "aria-label": `${text}: ${name}` }, text);
    made.addEventListener("click", () => press(made));
    return made;
  };
  const buttons = element("div", { className: "buttons" }, button("Send", (pressed) => send(route, pressed)));
  if (route.atOnce) buttons.append(button(`Send ${AT_ONCE} at once`, (pressed) => sendAtOnce(route, pressed)));
  byId("routes").append(element("li", { className: "card" },
    element("div", {}, element("h3", { className: "path" }, name), element("p", {}, route.text)),
    ...route.policies.map(meter),
    buttons));
}

// Live view

function show(policies) {
  for (const { name, limit, remaining, reset_after_ms } of policies) {
    const { bar, left, reset, trough } = meters[name];
    bar.style.width = `${100 * remaining / limit}%`;
    left.textContent = `${remaining} of ${limit} left`;
    // What is in flight comes back sooner than it would expire.
    const when = name === "in-flight" ? "at the latest in" : "in";
    reset.textContent = reset_after_ms > 0 ? `full again ${when} ${(reset_after_ms / 1000).toFixed(1)} s` : "full";
    trough.classList.toggle("low", remaining <= limit / 4);
    trough.setAttribute("aria-valuemax", limit);
    trough.setAttribute("aria-valuenow", remaining);
    trough.setAttribute("aria-valuetext", left.textContent);
  }
}

function setText(id, text) {
  // Set only when it changes: it is read aloud.
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

let asked = 0;
async function look() {
  const turn = ++asked;
  try {
    const response = await fetch("/api/remaining", { headers: headers(), cache: "no-store" });
    const body = await response.json();
    if (turn !== asked) return;
    if (!response.ok) throw new Error(body.error);
    setText("store", body.store);
    setText("view", "");
    show(body.policies);
  } catch (error) {
    if (turn === asked) setText("view", `No view: ${error.message}`);
  }
}

setInterval(() => { if (!document.hidden) look(); }, VIEW_EVERY_MS);
byId("api-key").addEventListener("input", look);
look();

// Requests

/** Whether a header is about limits: what this page is for. */
const isAboutLimits = ([name]) => /^(x-)?ratelimit|^retry-after$|^x-decided-by$/.test(name);

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text || "(empty)"; }
}

function answerItem({ what, status, kind, fields, body, ms }, isOpen) {
  const list = element("dl");
  for (const field of fields) {
    const [name, value] = field;
    const className = isAboutLimits(field) ? "about-limits" : "";
    list.append(
      element("dt", { className }, element("code", {}, name)),
      element("dd", { className }, element("code", {}, value)));
  }
  return element("li", {},
    element("div", { className: "first-line" },
      element("span", { className: `status ${kind}` }, status),
      element("span", { className: "path" }, what),
      element("span", {}, `after ${ms} ms`),
      element("span", { className: "quiet" }, new Date().toLocaleTimeString())),
    ...(fields.length ? [list] : []),
    element("details", { open: isOpen }, element("summary", {}, "Body"), element("pre", {}, pretty(body))));
}

async function sendOne(route) {
  const cost = byId("cost").value;
  const path = route.path === WEIGHTED && cost !== "" ? `${route.path}?cost=${encodeURIComponent(cost)}` : route.path;
  const what = `${route.method} ${path}`;
  const started = performance.now();
  // Until the last of the body.
  const ms = () => Math.round(performance.now() - started);
  try {
    const response = await fetch(path, { method: route.method, headers: headers(), cache: "no-store" });
    const body = await response.text();
    return {
      what, body, ms: ms(),
      kind: response.ok ? "admitted" : "refused",
      status: `${response.status} ${response.statusText}`.trim(),
      fields: [...response.headers].sort((one, other) => isAboutLimits(other) - isAboutLimits(one)),
    };
  } catch (error) {
    return { what, ms: ms(), kind: "failed", status: "No answer", fields: [], body: error.message };
  }
}

async function sendAndShow(route, isOpen) {
  const answer = await sendOne(route);
  const list = byId("answers");
  list.prepend(answerItem(answer, isOpen));
  while (list.children.length > MOST_ANSWERS) list.lastChild.remove();
  return answer;
}

/** Runs what a button does, unless it still does it, and sums up the answers. */
async function whilePressed(route, button, answersOf, tellTimes) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  const answers = await answersOf();
  button.removeAttribute("aria-disabled");
  const times = new Map();
  for (const { status, ms } of answers) times.set(status, [...(times.get(status) ?? []), ms]);
  const after = (all) => tellTimes ? ` after ${all.sort((one, other) => one - other).join(", ")} ms` : "";
  const parts = [...times].map(([status, all]) => `${all.length} × ${status}${after(all)}`);
  setText("summary", `${route.method} ${route.path}: ${parts.join("; ")}`);
  look();
}

async function send(route, button) {
  if (!byId("requests").reportValidity()) return;
  if (route.path === WEIGHTED && !byId("cost").reportValidity()) return;
  const count = byId("requests").valueAsNumber;
  await whilePressed(route, button, async () => {
    const answers = [];
    // One after another, so that the answers stand in the order of the decisions.
    while (answers.length < count && answers.at(-1)?.kind !== "failed") {
      answers.push(await sendAndShow(route, count === 1));
    }
    return answers;
  }, false);
}

async function sendAtOnce(route, button) {
  await whilePressed(route, button, () =>
    Promise.all(Array.from({ length: AT_ONCE }, () => sendAndShow(route, false))), true);
}

byId("clear").addEventListener("click", () => {
  byId("answers").replaceChildren();
  setText("summary", "");
});
