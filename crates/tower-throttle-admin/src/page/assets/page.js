// What keeps the page up to date: samples for the charts, and the page itself, again and again.

const REFRESH_MS = 5_000;
// How often samples, and the caller that is looked up, are asked for.
const SAMPLE_MS = 2_000;
const STALE_MS = 5_000;

// Asks the server. A body is JSON, or a form. The message of an error is for people.
async function send(path, body) {
  const headers = typeof body === "string" ? { "content-type": "application/json", "x-tower-throttle": "1" } : {};
  const post = body === undefined ? {} : { method: "POST", headers, body };
  const options = { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(30_000), ...post };
  const response = await fetch(new URL(path, base), options).catch(() => {
    throw new Error("The application does not answer. Try again in a moment.");
  });
  if (response.ok) return response;
  // A session that ended leads to the form for the token.
  if (response.status === 401) location.replace(location.pathname);
  const { detail } = await response.json().catch(() => ({}));
  const wait = Number(response.headers.get("retry-after"));
  const what = detail ?? `the application answered with status ${response.status}`;
  throw new Error(`${what}${wait ? `; try again in ${duration(wait * 1000)}` : ""}`);
}

// Swaps the parts of the page for those that the server has rendered now. Markup comes in here only,
// from this origin, and the server has escaped all texts in it. Of a document that is parsed like
// this, nothing runs.
async function swap(path, form) {
  const response = await send(path, form);
  if (!response.headers.get("content-type")?.startsWith("text/html")) throw new Error("The answer is no page.");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if ((form ?? null) !== asked) return false;
  clockOffset = Number(page.body.dataset.now) - Date.now();
  for (const next of page.querySelectorAll("[data-part]")) {
    const part = byId(next.id);
    if (part && (form || next.dataset.part !== "answer") && !isPointedAt(part)) morph(part, next);
  }
  return true;
}

const isPointedAt = (part) => "still" in part.dataset && part.rows[0]?.dataset.key !== undefined &&
  (part.matches(":focus-within") || (matchMedia("(hover: hover)").matches && part.matches(":hover")));

// Makes an element like another one, and keeps what is the same: the focus, a selection, what a
// screen reader reads.
function morph(node, next) {
  for (const { name } of [...node.attributes]) if (!next.hasAttribute(name) && !(name === "title" && node.dataset.at)) node.removeAttribute(name);
  for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  if ("own" in node.dataset) return;
  if (node.dataset.at) return keepTrue(node);
  const keyed = new Map([...node.children].filter(({ dataset }) => dataset.key).map((child) => [child.dataset.key, child]));
  let place = node.firstChild;
  for (const wanted of [...next.childNodes]) {
    const key = wanted.dataset?.key;
    const found = key === undefined ? place : keyed.get(key);
    keyed.delete(key);
    if (!found || found.nodeName !== wanted.nodeName || found.dataset?.key !== key) {
      node.insertBefore(wanted, place);
    } else {
      if (found === place) place = place.nextSibling;
      else node.insertBefore(found, place);
      if (found.nodeType === Node.ELEMENT_NODE) morph(found, wanted);
      else if (found.data !== wanted.data) found.data = wanted.data;
    }
  }
  while (place) {
    const { nextSibling } = place;
    place.remove();
    place = nextSibling;
  }
}

// Returns a function that does the work once at a time, and again if it was asked for meanwhile. A
// hidden page does nothing.
function once(work) {
  let current = null;
  let next = null;
  return function run() {
    if (document.hidden) return null;
    if (!current) return current = work().finally(() => { current = null; });
    return next ??= current.then(() => { next = null; return run(); });
  };
}

// The form of the look-up that is shown, which is sent again and again. `null`: none is.
let asked = null;
// Why the tables are not up to date.
let outdated = null;

const refresh = once(async () => {
  try {
    const isShown = asked !== null;
    const swapped = await swap(isShown ? "look-up" : "parts", asked ?? undefined);
    if (swapped) showSeries();
    outdated = null;
  } catch (error) {
    outdated = error.message;
  }
});

// Asks, and shows the answer. A click leads to it; the form keeps the focus and says it.
async function lookUp(form, submitter) {
  const own = asked = new URLSearchParams(new FormData(form, submitter));
  const [policy, , print] = submitter?.name === "link" ? JSON.parse(submitter.value) : [];
  if (print) [byId("caller").value, byId("policy").value] = [`fingerprint:${print}`, policy];
  byId("result-outcome").replaceChildren();
  try {
    if (!await swap("look-up", own)) return;
    const title = byId("answer-title");
    if (!title) asked = null;
    else if (!submitter?.name) say(title.textContent);
    else {
      byId("look-up").scrollIntoView();
      title.focus({ preventScroll: true });
    }
  } catch (error) {
    if (asked !== own) return;
    close();
    setText(byId("ask-problem"), error.message);
  }
}

function close() {
  asked = null;
  for (const id of ["result", "result-outcome", "ask-problem"]) byId(id).replaceChildren();
  byId("caller").focus();
}

// Looks up the caller that a link names: `#caller=ip:192.0.2.1&policy=api`. No server sees this part.
function lookUpLinked() {
  const link = new URLSearchParams(location.hash.slice(1));
  if (!link.get("caller")) return;
  for (const id of ["caller", "policy"]) byId(id).value = link.get(id) ?? "";
  byId("ask").requestSubmit();
}

// Samples

let samples = [];
let heardAt = null;
let version = null;
const nameOf = (...names) => JSON.stringify(names);
const NONE = { allowed: 0, denied: 0, shadow: 0 };

// Returns what is shown of a sample: there may be a thousand policies, and most of them idle.
function digest({ at_ms: at, limiters, stores }) {
  const rates = new Map();
  const add = (name, { allowed, denied, shadow_denied: shadow }) => {
    if (!(allowed + denied + shadow)) return;
    const sum = rates.get(name) ?? NONE;
    rates.set(name, { allowed: sum.allowed + allowed, denied: sum.denied + denied, shadow: sum.shadow + shadow });
  };
  for (const limiter of limiters) {
    add("", limiter);
    add(nameOf(limiter.name), limiter);
    for (const policy of limiter.policies) add(nameOf(limiter.name, policy.name), policy);
  }
  return { at, rates, stores };
}

// Returns the points of all requests, of a limiter, or of one of its policies.
const seriesOf = (name) => samples.map(({ at, rates }) => ({ at, ...(rates.get(name) ?? NONE) }));

let drawTraffic;
let drawCalls;

function showSamples() {
  if (document.hidden || samples.length === 0) return;
  const end = samples.at(-1).at;
  drawTraffic(seriesOf(byId("traffic-of").value), end);
  showSeries();
  const timed = samples.findLast(({ stores }) => stores.some(({ p50_ms }) => p50_ms != null))?.stores.find(({ p50_ms }) => p50_ms != null);
  byId("calls").hidden = !timed;
  if (!timed) return;
  setText(byId("calls-note"), `${timed.name}: ${count(timed.checks_per_call ?? 0)} checks per call`);
  drawCalls(samples.map(({ at, stores }) => {
    const store = stores.find(({ name }) => name === timed.name);
    return { at, p50: store?.p50_ms, p99: store?.p99_ms };
  }), end);
}

// Shows how often each policy denied in the last minutes.
function showSeries() {
  for (const { dataset: { series }, lastElementChild: cell } of byId("policies-part").rows) {
    if (series === undefined) continue;
    if (!cell.firstChild) cell.append(svg("svg.spark", { viewBox: "0 0 60 18", "aria-hidden": "true" }), el("span"));
    const values = seriesOf(series).map(({ denied }) => denied);
    cell.firstChild.replaceChildren(...sparkline(values));
    setText(cell.lastChild, count(Math.round(values.reduce((sum, value) => sum + value, 0))));
  }
}

// Asks for the samples that are new. An answer that goes further back is that of another process, or
// of one whose clock was set back.
const sample = once(async () => {
  const last = samples.at(-1);
  const response = await send(`api/v1/samples?since=${last?.at ?? 0}`).catch(() => null);
  if (!response) return;
  const more = await response.json();
  heardAt = performance.now();
  if (more.length === 0) return;
  const latest = more.at(-1);
  const kept = more[0].at_ms > last?.at ? samples : [];
  samples = [...kept, ...more.map(digest)].filter(({ at }) => at > latest.at_ms - SPAN_MS);
  const states = (one) => one?.stores.map(({ up }) => up).join();
  const isDenied = more.some(({ limiters }) => limiters.some(({ denied }) => denied));
  if (isDenied || latest.version !== version || states(latest) !== states(last)) refresh();
  version = latest.version;
  showSamples();
});

// Shows whether the page is live. Only a change of that is said, not each second of it.
function showLive() {
  if (document.hidden) return;
  const silent = heardAt === null ? null : performance.now() - heardAt;
  const isStale = silent >= STALE_MS;
  const [kind, state] = silent === null ? ["", "connecting"] : isStale ? ["bad", "not live: reconnecting"]
    : outdated ? ["bad", `not up to date: ${outdated}`] : ["good", "live"];
  const node = byId("live");
  if (node.dataset.state && node.dataset.state !== state) say(`This page is ${state}`);
  node.dataset.state = state;
  node.className = `live ${kind}`;
  setText(node, isStale ? `${state}. Shown: ${duration(silent)} ago` : state);
}

function startPage() {
  clockOffset = Number(document.body.dataset.now) - Date.now();
  drawTraffic = chart(byId("traffic-chart"), { name: "Requests per second", unit: "", series: [
    { key: "allowed", label: "allowed", area: true }, { key: "denied", label: "denied" }, { key: "shadow", label: "would deny" }] });
  drawCalls = chart(byId("calls-chart"), { name: "Duration of calls", unit: " ms", series: [
    { key: "p50", label: "median", area: true }, { key: "p99", label: "99 %" }] });
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp(event.target, event.submitter);
  });
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (button?.dataset.change) askFor(button);
    if (button?.matches("[data-close-answer]")) close();
    if (button?.matches("[data-in-all]")) {
      byId("policy").value = "";
      byId("ask").requestSubmit();
    }
  });
  lookUpLinked();
  addEventListener("hashchange", lookUpLinked);
  byId("traffic-of").addEventListener("change", showSamples);
  document.addEventListener("visibilitychange", () => {
    heardAt &&= performance.now();
    refresh();
    sample();
  });
  sample();
  setInterval(refresh, REFRESH_MS);
  setInterval(() => {
    sample();
    if (asked) refresh();
  }, SAMPLE_MS);
  setInterval(() => {
    document.querySelectorAll("[data-at]").forEach(keepTrue);
    showLive();
  }, 1_000);
}

startPage();
