// What keeps the page up to date: one stream, and a look at the rest every five seconds.

const REFRESH_MS = 5_000;
const STALE_MS = 3_500;
const MOST_DENIALS = 256;
let samples = [];
let heardAt = null;
let version = null;

const plain = (sample) => ({ allowed: sample?.allowed ?? 0, denied: sample?.denied ?? 0, shadow: sample?.shadow_denied ?? 0 });

// Returns the points of all limiters, of one, or of one of its policies.
function seriesOf(limiter, policy) {
  return samples.map(({ at_ms, limiters }) => {
    const some = limiters.filter(({ name }) => limiter === undefined || name === limiter);
    const parts = policy === undefined ? some : some.flatMap(({ policies }) => policies.filter(({ name }) => name === policy));
    const sum = { at: at_ms, ...plain() };
    for (const part of parts.map(plain)) for (const key of ["allowed", "denied", "shadow"]) sum[key] += part[key];
    return sum;
  });
}

function choose(select, options) {
  const chosen = select.value;
  sync(select, options, ([value]) => value, ([value, text]) => el("option", { value }, text));
  select.value = options.some(([value]) => value === chosen) ? chosen : options[0]?.[0] ?? "";
}

function showChoices(limiters) {
  const options = limiters.flatMap(({ name, policies }) => [
    ...(limiters.length > 1 ? [[JSON.stringify([name]), short(name)]] : []),
    ...policies.map((policy) => [JSON.stringify([name, policy]), limiters.length > 1 ? `${short(name)}: ${short(policy)}` : short(policy)]),
  ]);
  choose(byId("traffic-of"), [["", limiters.length > 1 ? "all limiters" : "all requests"], ...options]);
  choose(byId("policy"), [["", "all"], ...[...new Set(limiters.flatMap(({ policies }) => policies))].map((name) => [name, short(name)])]);
}

let drawTraffic;
let drawCalls;

function showSamples() {
  if (document.hidden || samples.length === 0) return;
  const end = samples.at(-1).at_ms;
  drawTraffic(seriesOf(...(byId("traffic-of").value ? JSON.parse(byId("traffic-of").value) : [])), end);
  const lately = samples.filter(({ at_ms }) => at_ms > end - 10_000);
  if (seen.status) showStoreTile(seen.status.stores.map((store) => ({ ...store, up: samples.at(-1).stores.find(({ name }) => name === store.name)?.up ?? store.up })), sumSources(lately));
  showSources();
  const latest = seriesOf().at(-1);
  showTile("tile-traffic", "quiet", `${count(latest.allowed + latest.denied)} per second`,
    [`${count(latest.allowed)} allowed, ${count(latest.denied)} denied${latest.shadow ? `, ${count(latest.shadow)} would be denied` : ""}`]);
  const timed = samples.findLast(({ stores }) => stores.some(({ p50_ms }) => p50_ms != null))?.stores.find(({ p50_ms }) => p50_ms != null);
  byId("calls").hidden = !timed;
  if (timed) {
    setText(byId("calls-note"), `${short(timed.name)}: ${plural(timed.checks_per_call ?? 0, "check")} per call`);
    drawCalls(samples.map(({ at_ms, stores }) => {
      const store = stores.find(({ name }) => name === timed.name);
      return { at: at_ms, p50: store?.p50_ms, p99: store?.p99_ms };
    }), end);
  }
  showCounts();
}

function take(more) {
  heardAt = performance.now();
  const latest = more.at(-1);
  samples = [...samples, ...more].filter(({ at_ms }) => at_ms > latest.at_ms - SPAN_MS);
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
  const isLive = silent !== null && silent < STALE_MS;
  const state = isLive ? "live" : silent === null ? "connecting" : "not live: reconnecting";
  const node = byId("live");
  if (node.dataset.state && node.dataset.state !== state) say(`This page is ${state}`);
  node.dataset.state = state;
  node.className = `live ${isLive ? "good" : silent === null ? "" : "bad"}`;
  setText(node, isLive || silent === null ? state : `${state}. Shown: ${duration(silent)} ago`);
}

let refreshing = false;
let hasDenials = false;

// Reads what the stream does not have.
async function refresh() {
  if (refreshing || document.hidden) return;
  refreshing = true;
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
  } catch {
    // The head says that the page is not live; the next look comes in a moment.
  } finally {
    refreshing = false;
  }
}

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
    const [text, policy] = [byId("caller").value, byId("policy").value];
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
