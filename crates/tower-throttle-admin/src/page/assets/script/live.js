// What keeps the page up to date: one stream, and a look at the rest every five seconds.

const REFRESH_MS = 5_000;
const STALE_MS = 3_500;
const MOST_DENIALS = 256;
let samples = [];
let heardAt = null;
let version = null;

// Names a limiter, or one of its policies.
const nameOf = (...names) => JSON.stringify(names);

const NONE = { allowed: 0, denied: 0, shadow: 0 };

// Returns what is shown of a sample: there may be a thousand policies, and most of them idle.
function digest({ at_ms: at, limiters, stores }) {
  const [rates, sources] = [new Map(), {}];
  const add = (name, { allowed, denied, shadow_denied: shadow }) => {
    if (!(allowed + denied + shadow)) return;
    const sum = rates.get(name) ?? NONE;
    rates.set(name, { allowed: sum.allowed + allowed, denied: sum.denied + denied, shadow: sum.shadow + shadow });
  };
  for (const limiter of limiters) {
    add("", limiter);
    add(nameOf(limiter.name), limiter);
    for (const policy of limiter.policies) add(nameOf(limiter.name, policy.name), policy);
    addSources(sources, limiter.sources);
  }
  return { at, rates, sources, stores };
}

// Returns the points of all requests, of a limiter, or of one of its policies.
const seriesOf = (name) => samples.map(({ at, rates }) => ({ at, ...(rates.get(name) ?? NONE) }));

function choose(select, options) {
  const chosen = select.value;
  sync(select, options, ([value]) => value, ([value, text]) => el("option", { value }, text));
  select.value = options.some(([value]) => value === chosen) ? chosen : options[0]?.[0] ?? "";
}

function showChoices(limiters) {
  const isOne = limiters.length < 2;
  const options = limiters.flatMap(({ name, policies }) => [
    ...(isOne ? [] : [[nameOf(name), short(name)]]),
    ...policies.map((policy) => [nameOf(name, policy), isOne ? short(policy) : `${short(name)}: ${short(policy)}`]),
  ]);
  choose(byId("traffic-of"), [...new Map([["", isOne ? "all requests" : "all limiters"], ...options])]);
  choose(byId("policy"), [["", "all"], ...[...new Set(limiters.flatMap(({ policies }) => policies))].map((name) => [name, short(name)])]);
}

let drawTraffic;
let drawCalls;

function showSamples() {
  if (document.hidden || samples.length === 0) return;
  const end = samples.at(-1).at;
  drawTraffic(seriesOf(byId("traffic-of").value), end);
  const lately = samples.filter(({ at }) => at > end - 10_000);
  if (seen.status) showStoreTile(seen.status.stores.map((store) => ({ ...store, up: samples.at(-1).stores.find(({ name }) => name === store.name)?.up ?? store.up })), sumSources(lately));
  showSources();
  const latest = seriesOf("").at(-1);
  showTile("tile-traffic", "quiet", `${count(latest.allowed + latest.denied)} per second`,
    [`${count(latest.allowed)} allowed, ${count(latest.denied)} denied${latest.shadow ? `, ${count(latest.shadow)} would be denied` : ""}`]);
  const timed = samples.findLast(({ stores }) => stores.some(({ p50_ms }) => p50_ms != null))?.stores.find(({ p50_ms }) => p50_ms != null);
  byId("calls").hidden = !timed;
  if (timed) {
    setText(byId("calls-note"), `${short(timed.name)}: ${plural(timed.checks_per_call ?? 0, "check")} per call`);
    drawCalls(samples.map(({ at, stores }) => {
      const store = stores.find(({ name }) => name === timed.name);
      return { at, p50: store?.p50_ms, p99: store?.p99_ms };
    }), end);
  }
}

function take(more) {
  heardAt = performance.now();
  const latest = more.at(-1);
  // The clock of the server may step.
  samples = [...samples, ...more.map(digest)].filter(({ at }) => at <= latest.at_ms && at > latest.at_ms - SPAN_MS);
  if (latest.denials.length) {
    // The list that was asked for may have some of them.
    const all = new Map([...latest.denials, ...seen.denials].map((denial) => [JSON.stringify(denial), denial]));
    seen.denials = [...all.values()].slice(0, MOST_DENIALS);
  }
  if (latest.version !== version) refresh();
  version = latest.version;
}

function connect() {
  const source = new EventSource(new URL("api/v1/stream", base));
  // A stream ends after seconds, and the next one goes on there. Samples between have no denials.
  source.addEventListener("open", () => { hasDenials = false; });
  source.addEventListener("history", ({ data }) => {
    const history = JSON.parse(data);
    samples = [];
    heardAt = performance.now();
    if (history.length) take(history);
    refresh();
    showSamples();
  });
  source.addEventListener("sample", ({ data }) => {
    take([JSON.parse(data)]);
    showSamples();
    showDenials();
  });
  source.addEventListener("error", () => {
    // The browser connects again by itself, unless the answer was an error.
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(connect, REFRESH_MS);
    refresh();
  });
}

// Shows whether the page is live. Only a change of that is said, not each second of it.
function showLive() {
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

let hasDenials = false;
// Why the tables are not up to date.
let outdated = null;

// Reads what the stream does not have.
const refresh = once(async () => {
  try {
    const names = ["status", "policies", "entries", "metrics", "top?limit=20"];
    const [status, policies, entries, metrics, top] = await Promise.all(names.map((name) => call(name)));
    Object.assign(seen, { status, policies, entries, metrics, top });
    if (!hasDenials) {
      seen.denials = await call("denials");
      hasDenials = true;
    }
    clockOffset = status.now_ms - Date.now();
    showChoices(status.limiters);
    showStatus(status);
    showStores(status.stores);
    samples.length ? showSamples() : showStoreTile(status.stores, {});
    showPolicies();
    showEntries();
    showTop();
    showDenials();
    outdated = null;
  } catch (error) {
    outdated = error.message;
  }
});

// Looks up the caller that a link names: `#caller=ip:192.0.2.1&policy=api`. No server sees this part.
function lookUpLinked() {
  const link = new URLSearchParams(location.hash.slice(1));
  if (!link.get("caller")) return;
  for (const id of ["caller", "policy"]) byId(id).value = link.get(id) ?? "";
  byId("ask").requestSubmit();
}

function startPage() {
  drawTraffic = chart(byId("traffic-chart"), { name: "Requests per second", unit: "", series: [
    { key: "allowed", label: "allowed", area: true }, { key: "denied", label: "denied" }, { key: "shadow", label: "would deny" }] });
  drawCalls = chart(byId("calls-chart"), { name: "Duration of calls", unit: " ms", series: [
    { key: "p50", label: "median", area: true }, { key: "p99", label: "99 %" }] });
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const [text, policy] = [byId("caller").value.trim(), byId("policy").value];
    lookUp({ caller: callerOf(text), ...(policy && { policy }) }, text, true);
  });
  lookUpLinked();
  addEventListener("hashchange", lookUpLinked);
  byId("traffic-of").addEventListener("change", showSamples);
  document.addEventListener("visibilitychange", () => { refresh(); showSamples(); });
  connect();
  setInterval(refresh, REFRESH_MS);
  setInterval(lookAgain, LOOK_AGAIN_MS);
  setInterval(() => { keepTimesTrue(); showLive(); }, 1_000);
}

startPage();
