// The switches for traffic and for the outage.

import { byId, element, setText } from "./dom.js";
import { headers } from "./responses.js";

/** What was read before the latest switch took effect is old. */
let settled = 0;

async function post(path, order) {
  settled = Infinity;
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { ...headers(), "content-type": "application/json", "x-tower-throttle": "1" },
      body: JSON.stringify(order),
    });
    setText(byId("switched"), response.ok ? "" : (await response.json()).detail ?? `${response.status}`);
  } catch (error) {
    setText(byId("switched"), `No response (${error.message}).`);
  }
  settled = performance.now();
}

/** Makes radio buttons that look like one switch. */
function choice(name, words, chosen) {
  const inputs = {};
  const labels = Object.entries(words).map(([value, text]) => {
    const id = `${name}-${value}`;
    inputs[value] = element("input", { type: "radio", name, id, value });
    inputs[value].addEventListener("change", () => chosen(value));
    return element("span", {}, inputs[value], element("label", { htmlFor: id }, text));
  });
  byId(name).append(...labels);
  return (value) => { if (inputs[value]) inputs[value].checked = true; };
}

const showMode = choice("traffic", { off: "Off", steady: "Steady", burst: "Burst", attack: "Attack" }, switchTraffic);
const showLink = choice("outage", { up: "Up", closed: "Closed", frozen: "Frozen" }, async (link) => {
  await post("/switches/outage", { link });
});

async function switchTraffic() {
  const mode = document.querySelector("#traffic input:checked")?.value ?? "off";
  await post("/switches/traffic", { mode, as_me: byId("as-me").checked });
}
byId("as-me").addEventListener("change", switchTraffic);

/** Follows the visitor to another key. */
export function callerChanged() {
  if (byId("as-me").checked) switchTraffic();
}

const EXPLAINED = {
  off: "No requests but yours.",
  steady: "A request now and then.",
  burst: "Eight at once, one card after another.",
  attack: "One caller floods, others invent keys.",
};

/** Shows the switches as they were when the server was asked. */
export function showSwitches({ traffic, outage, why_no_switches: why }, asked) {
  if (asked < settled) return;
  for (const id of ["traffic", "as-me-line"]) byId(id).hidden = Boolean(why);
  byId("outage").hidden = Boolean(why ?? outage.why_not);
  byId("admin").hidden = Boolean(why);
  showMode(traffic.mode);
  byId("as-me").checked = traffic.as_me;
  setText(byId("traffic-note"), why ?? `${EXPLAINED[traffic.mode]} ${traffic.sent.toLocaleString("en")} sent.`);
  showLink(outage.link);
  const links = {
    up: "Cut the link to Redis, and see who decides.",
    closed: "No connection to Redis: this process decides by itself.",
    frozen: "Redis does not answer: after 0.5 s, this process decides by itself.",
  };
  setText(byId("outage-note"), outage.why_not ?? why ?? links[outage.link]);
}
