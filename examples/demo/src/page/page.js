import { makeCard } from "./cards.js";
import { byId, parse, setText } from "./dom.js";
import { headers } from "./responses.js";
import { ROUTES } from "./routes.js";
import { callerChanged, showSwitches } from "./switches.js";

const POLL_EVERY_MS = 500;
const SOON_MS = 40;
/** Enough for two windows. */
const KEPT_MS = 130_000;

const cards = ROUTES.map((route) => ({ route, ...makeCard(route, lookSoon) }));
byId("routes").append(...cards.map(({ node }) => node));

// What is left

const known = {};
let requests = [];
let latest = 0;

function show(body, asked) {
  const seen = performance.now();
  setText(byId("store"), body.store);
  const isByStore = body.decided_by === "store";
  setText(byId("decided"), isByStore ? body.store : body.decided_by);
  byId("decided").className = isByStore ? "allowed" : "failed";
  showSwitches(body, asked);
  for (const policy of body.policies) known[policy.name] = { at_ms: Date.now(), ...policy, seen };
  // Those that an operator switched off, or to shadow, are not there.
  for (const policy of Object.values(known)) policy.isMissing = policy.seen !== seen;
  const news = body.requests.map((one) => ({ ...one, at: seen - one.age_ms }));
  latest = body.latest;
  requests = [...requests, ...news].filter(({ at }) => seen - at < KEPT_MS);
  for (const card of cards) {
    const here = ({ route }) => `/api/${route}` === card.route.path;
    card.show(known, requests.filter(here), news.filter(here), body.why_no_switches ? null : body.caller);
  }
}

let looks = 0;
async function look() {
  const number = ++looks;
  const asked = performance.now();
  let problem = "";
  try {
    const response = await fetch(`/api/remaining?after=${latest}`, { headers: headers(), cache: "no-store" });
    const body = await response.json();
    if (number !== looks) return;
    if (!response.ok) throw new Error(body.error);
    show(body, asked);
  } catch (error) {
    if (number !== looks) return;
    problem = `Cannot read the buckets (${error.message}); retrying.`;
  }
  setText(byId("view"), problem);
  byId("routes").classList.toggle("stale", problem !== "");
}

let soon = 0;
function lookSoon() {
  soon ||= setTimeout(() => { soon = 0; look(); }, SOON_MS);
}

function showCommands() {
  for (const card of cards) card.showCommand();
}

// The server put this into the page: the first paint shows what is left.
const start = parse(byId("start").textContent);
if (start) show(start, 0);
showCommands();
setInterval(() => { if (!document.hidden) look(); }, POLL_EVERY_MS);
byId("api-key").addEventListener("input", () => {
  [requests, latest] = [[], 0];
  for (const card of cards) card.forget();
  callerChanged();
  look();
});
addEventListener("input", showCommands);
look();
