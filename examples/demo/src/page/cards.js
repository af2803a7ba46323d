// A card for each route: its picture, what is left, buttons and responses.

import { byId, duration, element, label, set, setText, svg } from "./dom.js";
import { pathOf, request, responsePanel } from "./responses.js";
import { perform, wake } from "./stage.js";

// Browsers open six connections to a host; one stays free for polling.
const AT_ONCE = 5;
/** Older requests are in the picture at once, and do not arrive anymore. */
const ARRIVES_MS = 3_000;

function meter(policy) {
  const bar = element("i");
  const left = element("b", {}, "…");
  const reset = element("small", {}, "\u00a0");
  const trough = element("div", {
    className: "trough", role: "meter", "aria-label": `Left in policy ${policy}`, "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": "0",
  }, bar);
  const node = element("div", { className: "meter" },
    element("div", { className: "meter-label" }, element("code", {}, policy), reset, left), trough);
  return {
    node,
    show({ name, limit, remaining, reset_after_ms }) {
      bar.style.width = `${100 * remaining / Math.max(1, limit)}%`;
      left.textContent = `${remaining} of ${limit} left`;
      // A permit expires at the latest then, and comes back sooner when its response ends.
      const when = name === "in-flight" ? "within" : "in";
      reset.textContent = reset_after_ms > 0 ? `full again ${when} ${duration(reset_after_ms)}` : "full";
      trough.classList.toggle("low", remaining <= limit / 4);
      set(trough, { "aria-valuemax": limit, "aria-valuenow": remaining, "aria-valuetext": left.textContent });
    },
  };
}

/** The live picture of a route's buckets. */
function pictureOf(route) {
  const made = route.picture(...route.policies);
  const [verdict, why] = [label(160, 70, "number none"), label(160, 92, "caption")];
  const decided = svg("g", { class: "decided", visibility: "hidden" },
    svg("rect", { x: 0, y: 0, width: 320, height: 155 }), verdict, why);
  const node = svg("svg", { viewBox: "0 0 320 155", role: "img", class: "picture", "aria-label": route.text }, made.node, decided);
  let policies;
  let requests = [];
  perform(node, (now) => {
    const moves = made.way.draw(now);
    return policies ? made.draw(policies, now, requests) || moves : moves;
  });
  return {
    node,
    show(known, all, news) {
      const own = route.policies.map((name) => known[name]);
      const ban = own.find((policy) => policy.banned && route.name !== "Penalty");
      const off = own.some((policy) => policy.isMissing);
      set(decided, { visibility: ban || off ? "visible" : "hidden" });
      let state;
      if (ban || off) {
        setText(verdict, ban ? "banned" : "not enforced");
        setText(why, ban ? `by an operator, for ${duration(ban.reset_after_ms)}` : "an operator changed the mode");
        state = `${verdict.textContent}: ${why.textContent}`;
      } else {
        [policies, requests] = [known, all];
        state = made.view(policies, requests);
      }
      set(node, { "aria-label": `${route.name}: ${state}.` });
      const now = performance.now();
      made.way.send(news.filter((one) => now - one.at < ARRIVES_MS), now);
    },
    forget() { requests = []; },
  };
}

const select = (id, name, options) => element("select", { id, "aria-label": name },
  ...Object.entries(options).map(([value, text]) => element("option", { value }, text)));
const INPUTS = {
  cost: () => [
    element("span", {}, element("label", { htmlFor: "cost" }, "Cost"),
      element("input", { id: "cost", type: "number", min: "0", value: "5" }))],
  password: () => [select("password", "Password", { sesame: "right one", guess: "wrong one" })],
  page: () => [select("page", "Page", { home: "a page", missing: "a 404" })],
};

/** The command that sends the same request. */
export function curl(route) {
  const key = byId("api-key").value;
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return ["curl -i", ...(route.method === "GET" ? [] : [`-X ${route.method}`]),
    ...(key ? [`-H ${quoted(`x-api-key: ${key}`)}`] : []), quoted(location.origin + pathOf(route))].join(" ");
}

/** The card to keep on screen: the one pressed last, until the user scrolls. */
let followed;
for (const event of ["wheel", "touchmove"]) {
  addEventListener(event, () => { followed = undefined; }, { passive: true });
}

function reveal(responses) {
  if (followed === responses) responses.panel.scrollIntoView({ block: "nearest" });
}

function summaryOf(responses, withTimes) {
  if (responses.length < 2) return "";
  const times = new Map();
  for (const { status, ms } of responses) times.set(status, [...(times.get(status) ?? []), ms]);
  const after = (all) => withTimes ? ` after ${all.sort((one, other) => one - other).join(", ")} ms` : "";
  return [...times].map(([status, all]) => `${all.length} × ${status}${after(all)}`).join("; ");
}

/** Runs what a button does, once at a time, and sums up the responses. */
async function press(button, responses, send, withTimes) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  followed = responses;
  responses.setBusy(true);
  responses.summarize("");
  const sent = await send();
  responses.summarize(summaryOf(sent, withTimes));
  responses.setBusy(false);
  button.removeAttribute("aria-disabled");
  reveal(responses);
}

/** Makes a card. `look()` reads the buckets again. */
export function makeCard(route, look) {
  const name = `${route.method} ${route.path}`;
  const responses = responsePanel(name);
  const sendOne = async () => {
    const show = responses.sent();
    reveal(responses);
    const response = await request(route);
    show(response);
    reveal(responses);
    look();
    return response;
  };
  const inTurn = async () => {
    const count = byId("requests").valueAsNumber;
    const sent = [];
    while (sent.length < count && sent.at(-1)?.kind !== "failed") sent.push(await sendOne());
    return sent;
  };
  const atOnce = () => {
    const sent = Promise.all(Array.from({ length: AT_ONCE }, sendOne));
    look();
    return sent;
  };
  const button = (text, kind, send, withTimes) => {
    const made = element("button", { type: "button", className: kind, "aria-label": `${text}: ${name}` }, text);
    made.addEventListener("click", () => {
      const inputs = route.input ? ["requests", route.input] : ["requests"];
      if (inputs.every((id) => byId(id).reportValidity())) press(made, responses, send, withTimes);
    });
    return made;
  };
  const meters = Object.fromEntries(route.policies.map((policy) => [policy, meter(policy)]));
  const picture = route.picture && pictureOf(route);
  const command = element("pre");
  const lookUp = element("a", { target: "admin", hidden: true, "aria-label": `You on the admin page: ${route.name}` }, "you on the admin page");
  const node = element("li", { className: "card" },
    element("div", { className: "head" }, element("h3", {}, route.name), element("code", {}, name)),
    element("div", {}, ...(picture ? [picture.node] : []), element("p", {}, route.text)),
    element("div", {}, ...Object.values(meters).map((one) => one.node)),
    element("div", { className: "buttons" },
      button("Send", "send", inTurn, false), button(`${AT_ONCE} at once`, "at-once", atOnce, true), ...(INPUTS[route.input]?.() ?? [])),
    element("div", {}, responses.panel,
      element("div", { className: "more" }, element("details", { className: "command" }, element("summary", {}, "curl"), command), lookUp)));
  setInterval(responses.countDown, 100);
  return {
    node,
    show(known, all, news, caller) {
      lookUp.hidden = !caller || route.policies.length === 0;
      if (!lookUp.hidden) lookUp.href = `/admin/#${new URLSearchParams({ caller, ...(route.policies.length === 1 && { policy: route.policies[0] }) })}`;
      const policies = route.policies.map((policy) => known[policy]);
      if (policies.some((policy) => !policy)) return;
      policies.forEach((policy) => meters[policy.name].show(policy));
      picture?.show(known, all, news);
      wake();
    },
    forget() { picture?.forget(); },
    showCommand() { setText(command, curl(route)); },
  };
}
