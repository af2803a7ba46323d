// State and tables.

const canChange = document.body.dataset.changes === "true";
// What the API said last.
const seen = { status: null, policies: [], entries: [], metrics: [], top: [], denials: [] };

const SOURCES = [
  ["store", "Redis or memory", "good"],
  ["cache", "Cached denials", "good"],
  ["lease", "Leased units", "good"],
  ["list", "Lists and bans", "quiet"],
  ["local", "Local: store failed", "warn"],
  ["store_failure", "None: store failed", "bad"],
];
const REASONS = {
  quota_exceeded: "no room", banned: "banned", cost_impossible: "can never fit", key_missing: "no key",
  listed: "on the deny list", store_failed: "store failed", misconfigured: "misconfigured",
};
const SIGNS = { good: "✓", bad: "✕", warn: "!" };

const signed = (kind, text) =>
  [SIGNS[kind] && el(`span.sign.${kind}`, { "aria-hidden": "true" }, SIGNS[kind]), text];

// Shows the answer of a tile, and notes: `[text]`, `[text, time]` or `[kind, text, foreign text]`.
function showTile(id, kind, value, ...notes) {
  const items = [[kind, value], ...notes.filter(Boolean)].map((item, index) => ({ item, index }));
  sync(byId(id).querySelector(".answers"), items, ({ index }) => index, ({ item: [one, two, three], index }) => {
    if (index === 0) return el(`p.value.${one}`, signed(one, two));
    return three === undefined ? el("p.note", one, two && when(two, "ago")) : el(`p.${one}`, two, foreign(three));
  });
}

const total = (numbers) => Object.values(numbers).reduce((sum, value) => sum + value, 0);

function addSources(sums, sources) {
  for (const [source, amount] of Object.entries(sources)) sums[source] = (sums[source] ?? 0) + amount;
  return sums;
}

const sumSources = (some) => some.reduce((sums, { sources }) => addSources(sums, sources), {});

// Answers whether Redis decides, from the stores' state and what decided lately.
function showStoreTile(stores, sources) {
  const all = total(sources);
  const failed = (sources.local ?? 0) + (sources.store_failure ?? 0);
  const down = stores.filter(({ up }) => !up);
  const decided = [all ? `${share(all - failed, all)} of the decisions of the last 10 s` : "No decision in the last 10 s"];
  if (down.length || failed) {
    const none = down.length === stores.length || (all > 0 && failed === all);
    return showTile("tile-store", none ? "bad" : "warn", none ? "No: it fails" : "Partly: calls fail", decided,
      ...down.map(({ name }) => ["bad", "Down: ", name]), ["Each policy goes by its setting for failures"]);
  }
  if (stores.some(({ breakers_open }) => breakers_open !== null)) return showTile("tile-store", "good", "Yes", decided);
  return showTile("tile-store", "quiet", "No Redis: in memory", ["Each process counts for itself"]);
}

function showStatus({ control, config }) {
  if (config === null) showTile("tile-file", "quiet", "In code", ["No file of limits is followed"]);
  else if (config.rejected) {
    showTile("tile-file", "bad", "A new file is rejected", [`Version ${count(config.version)} applies on. Rejected `, config.rejected.since_ms],
      ...config.rejected.problems.slice(0, 3).map((text) => ["bad", "", text]));
  } else {
    showTile("tile-file", "good", `Version ${count(config.version)}`, ["From the file, applied ", config.applied_ms],
      config.hash && ["note", "Hash ", config.hash]);
  }
  if (control === null) showTile("tile-document", "quiet", "Not in use", ["Bans, overrides and modes need one"]);
  else {
    showTile("tile-document", control.problem ? "warn" : "quiet", control.problem ? "Not up to date" : plural(control.entries, "entry", "entries"),
      control.problem && ["bad", "", control.problem],
      control.since_ms ? ["Changes applied ", control.since_ms] : ["Nothing was changed yet"],
      ...control.unknown_policies.slice(0, 1).map((name) => ["note", "No such policy here: ", name]),
      ...control.not_followed.slice(0, 1).map((name) => ["warn", "Not followed under ", name]));
  }
}

const amounts = ({ allowed = 0, near = 0, denied = 0, impossible = 0, key_missing = 0, shadow_denied = 0 }) =>
  [allowed + near, denied + impossible + key_missing, shadow_denied];

// Shows a caller as a button that looks it up.
function caller(limiter, policy, print, name) {
  const look = () => lookUp({ caller: `fingerprint:${print}`, policy, ...(limiter && { limiter }) }, name ?? short(print, 11));
  const link = button(name ? foreign(name) : fingerprint(print), look, `${policy} ${print}`, `Look up ${short(name ?? print)} in ${policy}`);
  link.className = "link";
  return link;
}

const keyOfPolicy = ({ limiter, name }) => nameOf(limiter, name);
const hasOneLimiter = () => new Set(seen.policies.map(({ limiter }) => limiter)).size < 2;

function showPolicies() {
  const one = hasOneLimiter();
  const items = seen.policies.map((policy) => ({ ...policy, one }));
  showRows(byId("policies"), items, keyOfPolicy, (policy) => {
    const { mode, enforced_percent: percent, by_hand: entry } = policy;
    const word = percent > 0 && percent < 100 ? `enforce for ${count(percent)} %` : mode;
    return el("tr",
      head(foreign(policy.name), !one && small(foreign(policy.limiter))),
      cell(policy.quota ?? "chosen for each request", small([
        policy.shared ? "one bucket for all callers" : `counts by ${policy.counts_by}`,
        policy.on_store_failure !== "local" && `if the store fails: ${policy.on_store_failure}`,
        policy.followed === false && "does not follow the control document", policy.overrides > 0 && plural(policy.overrides, "override"), policy.bans > 0 && plural(policy.bans, "ban")].filter(Boolean).join(" · "))),
      el("td.mode", badge(mode === "shadow" ? "warn" : "quiet", word),
        canChange && policy.followed && button("Change…", () => askMode(policy), "mode", `Change the mode of ${policy.name}`),
        entry && small("by ", foreign(entry.author ?? "an operator", 30), entry.until_ms && [", ends ", when(entry.until_ms, "in")])),
      numberCell(), numberCell(), numberCell(),
      el("td.number.scripted", svg("svg.spark", { viewBox: "0 0 60 18", "aria-hidden": "true" }), el("span")));
  }, "No layer or limiter is shown.");
  showCounts();
}

// Puts the numbers, which change all the time, into rows that stay.
function showCounts() {
  const rows = [...kept.get(byId("policies").tBodies[0]).values()];
  seen.policies.forEach(({ index, limiter, name, mode }, row) => {
    const { cells } = rows[row].node;
    const checks = seen.metrics[index]?.policies.find((policy) => policy.name === name)?.checks ?? {};
    amounts(checks).forEach((value, column) => setText(cells[column + 3], count(value)));
    const values = seriesOf(nameOf(limiter, name)).map(({ denied, shadow }) => denied + shadow);
    cells[6].firstChild.replaceChildren(sparkline(values, mode === "shadow" ? "shadow" : "denied"));
    setText(cells[6].lastChild, count(Math.round(values.reduce((sum, value) => sum + value, 0))));
  });
}

function showSources() {
  const sums = sumSources(samples);
  const all = total(sums);
  setText(byId("sources-note"), "last 5 minutes");
  showRows(byId("sources"), SOURCES, ([key]) => key, ([, name, kind]) =>
    el("tr", head(name), cell(el(`div.trough.${kind}`, el("i"))), numberCell(), numberCell()));
  SOURCES.forEach(([key], index) => {
    const row = byId("sources").tBodies[0].rows[index];
    const value = sums[key] ?? 0;
    row.querySelector("i").style.width = `${all ? 100 * value / all : 0}%`;
    row.classList.toggle("nothing", value === 0);
    setText(row.cells[2], share(value, all));
    setText(row.cells[3], count(Math.round(value)));
  });
}

function showStores(stores) {
  showRows(byId("stores"), stores, ({ name }) => name, (store) => {
    const kind = store.up ? "good" : "bad";
    return el("tr", head(foreign(store.name), store.cached_denials > 0 && small(plural(store.cached_denials, "cached denial"))),
      cell(el(`span.${kind}`, signed(kind, store.up ? "up" : "down")), store.breakers_open > 0 && small(plural(store.breakers_open, "open breaker"))),
      numberCell(store.in_flight === null ? "-" : count(store.in_flight)), numberCell(count(total(store.failures))),
      numberCell(store.buckets === null ? "-" : count(store.buckets), store.local_buckets > 0 && small(`${count(store.local_buckets)} local`)));
  }, "No store is shown.");
}

const MOST_ENTRIES = 500;
const WHAT = {
  ban: () => "denies all requests",
  override: ({ quota }) => quota,
  mode: ({ mode }) => mode,
  list: ({ list, range }) => `on the ${list} list${range ? "" : " by key"}`,
};

const what = (entry) => [badge(entry.kind === "ban" ? "bad" : "quiet", entry.kind), " ", WHAT[entry.kind]?.(entry)];

function showEntries() {
  const keyOf = ({ kind, policy, fingerprint: print, range }) => JSON.stringify([kind, policy, print, range]);
  const latest = seen.entries.slice(-MOST_ENTRIES);
  setText(byId("entries-note"), latest.length < seen.entries.length ? `the latest ${count(MOST_ENTRIES)} of ${count(seen.entries.length)}` : "");
  showRows(byId("entries"), latest, keyOf, (entry) => {
    const { kind, policy, fingerprint: print, range, author, reason, created_ms, until_ms } = entry;
    const label = entry.label ?? range;
    return el("tr",
      head(what(entry),
        small(policy && print ? [caller(null, policy, print, label), " in "] : label && [foreign(label), " "], policy && foreign(policy))),
      cell(foreign(author ?? "an operator", 30), small(when(created_ms, "ago")), reason && small(foreign(reason))),
      cell(until_ms ? when(until_ms, "in") : "when removed"),
      canChange && numberCell(kind !== "list" && button("Remove…", () => askRemove(entry),
        "remove", `Remove: ${kind} of ${short(label ?? print ?? policy)}`)));
  }, "Nothing is changed by hand.");
}

const isPointedAt = (box) =>
  box.matches(":focus-within") || (matchMedia("(hover: hover)").matches && box.matches(":hover"));

// Shows equal denials together. The list keeps still while it is pointed at.
function showDenials() {
  const table = byId("denials");
  const still = isPointedAt(table) && kept.has(table.tBodies[0]);
  setText(byId("denials-note"), still ? "keeps still while you are in it" : "equal ones together");
  if (still) return;
  const groups = new Map();
  for (const { at_ms, retry_after_ms, ...same } of seen.denials) {
    const key = JSON.stringify(same);
    const group = groups.get(key) ?? { ...same, at_ms, retry_after_ms, key, times: 0 };
    group.times += 1;
    groups.set(key, group);
  }
  showRows(table, [...groups.values()].slice(0, 50), ({ key }) => key, ({ limiter, at_ms, reason, retry_after_ms, method, route, callers, times }) => {
    const known = callers.filter(({ fingerprint: print }, index) =>
      print && callers.findIndex((other) => other.fingerprint === print) === index);
    const policies = callers.flatMap(({ policy }, index) => [index > 0 && ", ", foreign(policy, 40)]);
    return el("tr",
      head(known.length ? known.map(({ policy, fingerprint: print }) => [caller(limiter, policy, print), " "]) : "unknown"),
      cell(el("span.bad", REASONS[reason] ?? reason), small(policies)),
      cell(method, " ", route && foreign(route), small(retry_after_ms === null ? "waiting does not help" : `wait ${duration(retry_after_ms)}`)),
      numberCell(when(at_ms, "ago"), times > 1 && small(`${count(times)} times`)));
  }, "No denial yet.");
}

function showTop() {
  const table = byId("top");
  if (isPointedAt(table) && kept.has(table.tBodies[0])) return;
  const one = hasOneLimiter();
  showRows(table, seen.top, ({ limiter, policy, shadow, fingerprint: print }) => JSON.stringify([limiter, policy, shadow, print]), (offender) => el("tr",
    head(caller(offender.limiter, offender.policy, offender.fingerprint, offender.name)),
    cell(foreign(offender.policy, 40), offender.shadow && small("would be denied"), !one && [" ", el("span.note", foreign(offender.limiter, 40))]),
    numberCell(count(offender.count - offender.error), offender.error > 0 && small(`up to ${count(offender.count)}`)),
    numberCell(when(offender.last_seen_ms, "ago"))), "No caller has been denied.");
}
