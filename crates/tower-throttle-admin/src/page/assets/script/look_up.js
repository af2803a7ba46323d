// One caller: what each policy does with it, kept up to date while it is shown.

const LOOK_AGAIN_MS = 2_000;
// The question that is shown: `{ question, name }`.
let asked = null;
let cards = new Map();

const isDenied = ({ list, allowed, banned, mode }) => list ? list === "deny" : mode === "enforce" && (banned || allowed === false);

// Returns a kind, a word and a sentence for what a policy does with a caller.
function verdict(state) {
  const { list, allowed, banned, banned_by, error, mode, retry_after_ms } = state;
  if (list === "deny") return ["bad", "On the deny list", "The list decides before all policies."];
  if (list === "allow") return ["good", "On the allow list", "The list decides before all policies: none is asked."];
  if (mode === "off") return ["quiet", "Off", "The policy is switched off: it denies nothing."];
  let why = "";
  if (banned) why = banned_by === "operator" ? "An operator banned this caller." : "The policy banned this caller for what it did before.";
  else if (error !== null || allowed === null) return ["warn", "Unknown", ""];
  else if (!allowed) why = retry_after_ms === null ? "There is no room, and waiting does not help." : "There is no room.";
  else return ["good", "Has room", ""];
  if (mode === "shadow") return ["warn", "Would be denied", `${why} The policy only counts: it denies nothing.`];
  return ["bad", banned ? "Banned" : "No room", why];
}

const left = ({ remaining, limit }) => `${count(remaining)} of ${count(limit)} left`;

// Returns facts: `[name, text]`, or `[name, null, time]`.
function factsOf(state, at) {
  const room = state.banned ? state.banned_until_ms : state.allowed === false && state.retry_after_ms !== null ? at + state.retry_after_ms : null;
  const { reset_after_ms: reset } = state;
  return [
    state.quota && ["Quota", state.quota],
    room !== null && ["Room", null, room],
    state.allowed && ["Wait", "none"],
    reset === 0 && ["Used", "nothing"],
    reset > 0 && ["Full again", null, at + reset],
    state.held > 0 && ["Held", `${count(state.held)} by requests under way`],
    state.shared && ["Bucket", "one for all callers"],
    state.mode === "shadow" && ["Mode", "shadow"],
    state.source && state.source !== "store" && ["Decided by", SOURCES.find(([key]) => key === state.source)?.[1] ?? state.source],
  ].filter(Boolean);
}

function entryLine(entry) {
  const { label, author, created_ms, until_ms, reason } = entry;
  return el("li", what(entry), label && [" (", foreign(label), ")"], ", set by ", foreign(author ?? "an operator"), ", ", when(created_ms, "ago"),
    until_ms ? [", ends ", when(until_ms, "in")] : ", until it is removed", reason && [": ", foreign(reason, 256)]);
}

function actionsOf({ banned, banned_by, followed, entries, error, fingerprint: print }) {
  if (!canChange || print === null) return [];
  const has = (kind) => entries.some((entry) => entry.kind === kind);
  const isBanned = has("ban") || (banned && banned_by === "policy");
  return [
    error === null && "reset", isBanned && "unban",
    followed && !has("ban") && "ban", followed && "override", has("override") && "clear-override",
  ].filter(Boolean);
}

function makeCard(first) {
  const [word, why, error, remaining, bar] = [el("span"), el("p"), el("p.problem"), el("b"), el("i")];
  const [facts, entries, actions, outcome, keys] = [el("dl"), el("ul.entries"), el("p.actions"), el("div"), el("p.keys")];
  const trough = el("div", { role: "meter", "aria-label": `Left in ${first.policy}`, "aria-valuemin": 0 }, bar);
  const usage = el("div.usage", trough, remaining);
  const card = {
    outcome,
    node: el("article.policy", el("header", el("h4", foreign(first.policy), " ", small(foreign(first.limiter))), word),
      why, error, usage, facts, entries, outcome, actions, keys),
    show(state, at) {
      card.state = state;
      const [kind, text, sentence] = verdict(state);
      word.className = `badge ${kind}`;
      sync(word, [[kind, text]], () => "word", () => el("span", signed(kind, text)));
      setText(why, sentence);
      setText(error, state.error ?? "");
      usage.hidden = state.limit === null;
      if (state.limit !== null) {
        setText(remaining, left(state));
        bar.style.width = `${Math.min(100, 100 * state.remaining / Math.max(1, state.limit))}%`;
        trough.className = `trough ${kind === "good" && state.remaining <= state.limit / 5 ? "warn" : kind}`;
        set(trough, { "aria-valuemax": state.limit, "aria-valuenow": state.remaining, "aria-valuetext": left(state) });
      }
      sync(facts, factsOf(state, at), ([name]) => name, ([name, value, time]) =>
        el("div", el("dt", name), el("dd", time ? when(time, "in") : value)));
      sync(entries, state.entries, ({ kind: entry, range }) => `${entry} ${range}`, entryLine);
      sync(actions, actionsOf(state), (name) => name, (name) =>
        button(CHANGES[name].text, () => askOfCaller(name, card), name, `${CHANGES[name].text} ${state.policy}`));
      sync(keys, [[state.fingerprint, state.storage_key]], () => "keys", ([print, key]) =>
        el("span", print && ["caller ", el("code", print)], key && [" in ", el("code", { title: key }, short(key, 120))]));
    },
  };
  return card;
}

const keyOfState = ({ limiter, policy }) => JSON.stringify([limiter, policy]);

function headline(states) {
  const denied = states.filter(isDenied);
  const unknown = states.filter((state) => verdict(state)[1] === "Unknown");
  const names = denied.slice(0, 3).map(({ policy }) => `“${short(policy)}”`).join(", ");
  const more = denied.length > 3 ? ` and ${plural(denied.length - 3, "other")}` : "";
  if (denied.length) return ["bad", `Denied by ${names}${more}.`];
  if (unknown.length) return ["warn", `Unknown for ${plural(unknown.length, "policy", "policies")}; no other denies it.`];
  return ["good", states.length === 1 ? "The policy lets it in." : `Let in by all ${plural(states.length, "policy", "policies")}.`];
}

function showAnswer({ policies }, at) {
  const states = byKey(policies, keyOfState);
  const [kind, text] = headline(policies);
  const { question, name } = asked;
  const result = byId("result");
  if (!byId("answer-title")) {
    cards = new Map();
    result.replaceChildren(el("div.answer",
      el("div.heading", el("h3", { id: "answer-title", tabindex: -1 }), el("p.actions",
        question.policy && button("In all policies", () => lookUp({ caller: question.caller }, name)),
        button("Close", close))),
      el("div.policies", { id: "answers" })));
  }
  sync(byId("answer-title"), [[name, question, text]], () => "title", () =>
    el("span", foreign(name), " ", el(`span.${kind}`, signed(kind, text))));
  // A policy may be gone: another version of a file has others.
  for (const key of cards.keys()) if (!states.has(key)) cards.delete(key);
  for (const [key, state] of [...states].sort(([, one], [, other]) => isDenied(other) - isDenied(one))) {
    if (!cards.has(key)) cards.set(key, makeCard(state));
    cards.get(key).show(state, at);
  }
  // Their order stays, so that no button moves away.
  sync(byId("answers"), [...cards.keys()], (key) => key, (key) => cards.get(key).node);
  return text;
}

const PART = /^(text|number|ip|fingerprint|header|cookie|bearer|method):/;

// Returns the parts of a caller, if all words are some. Otherwise it is one text.
function callerOf(text) {
  const words = text.split(/\s+/);
  return words.length > 1 && words.every((word) => PART.test(word)) ? words : text;
}

// Asks, and shows the answer. A click leads to it; the form keeps the focus and says it.
async function lookUp(question, name, stay = false) {
  const own = asked = { question, name };
  byId("result").replaceChildren();
  setText(byId("ask-problem"), "");
  try {
    const answer = await call("lookup", question);
    if (asked !== own) return;
    const text = showAnswer(answer, now());
    if (stay) return say(`${short(name)}: ${text}`);
    byId("look-up").scrollIntoView();
    byId("answer-title").focus({ preventScroll: true });
  } catch (error) {
    if (asked !== own) return;
    close();
    setText(byId("ask-problem"), error.message);
  }
}

const lookAgain = once(async () => {
  const own = asked;
  if (!own) return;
  try {
    const answer = await call("lookup", own.question);
    if (asked !== own) return;
    showAnswer(answer, now());
    setText(byId("ask-problem"), "");
  } catch (error) {
    if (asked === own) setText(byId("ask-problem"), `This is not up to date: ${error.message}`);
  }
});

function close() {
  asked = null;
  byId("result").replaceChildren();
  setText(byId("ask-problem"), "");
  byId("caller").focus();
}
