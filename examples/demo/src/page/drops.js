// The road of a picture: requests come from the left, pass a gate or are denied at it.

import { duration, group, label, set, svg } from "./dom.js";
import { isStill } from "./stage.js";

export const ROAD_Y = 130;
const [FROM, TO] = [18, 302];
const ARRIVE_MS = 420;
const LEAVE_MS = 460;
const DENIED_MS = 1_500;
const APART_MS = 80;
/** In a flood, the others are only counted. */
const MOST = 14;

const eased = (part) => part * part * (3 - 2 * part);

/** What is written beside a request at the gate. */
function remark(request) {
  if (!request.allowed) {
    return request.wait_s === null ? "never fits" : `wait ${duration(request.wait_s * 1000)}`;
  }
  if (request.status === 401) return "wrong: charged";
  if (request.status === 404) return "a strike";
  return request.cost > 1 && request.status === 200 ? `−${request.cost}` : "";
}

function makeDrop(request) {
  const radius = Math.min(13, 4.5 + Math.sqrt(Math.max(0, request.cost)) * 1.1);
  const cross = svg("path", { d: "M-3 -3 3 3M3 -3 -3 3", class: "cross", visibility: "hidden" });
  const dot = group(svg("circle", { r: radius }), cross);
  const text = label(0, 0, "remark", remark(request));
  return { request, dot, text, cross, node: svg("g", { class: "drop", opacity: 0 }, dot, text) };
}

/**
 * Makes a road with gates at these places. `denyAt(request)` is the gate that denied it.
 */
export function road(gates, denyAt = () => gates[0]) {
  const layer = group();
  const posts = gates.map((x) => svg("path", { d: `M${x} ${ROAD_Y - 12}V${ROAD_Y + 12}`, class: "gate" }));
  const node = group(
    svg("path", { d: `M8 ${ROAD_Y}H312`, class: "road" }),
    svg("path", { d: `M306 ${ROAD_Y - 4}l6 4 -6 4`, class: "road" }),
    ...posts, layer);
  let live = [];
  let latest = 0;

  function place(drop, now) {
    const age = now - drop.at;
    const { allowed, status } = drop.request;
    const gate = allowed ? gates.at(-1) : denyAt(drop.request) - 12;
    const isThere = isStill() || age >= ARRIVE_MS;
    let x = FROM + (gate - FROM) * eased(Math.min(1, Math.max(0, age / ARRIVE_MS)));
    let opacity = age < 0 ? 0 : 1;
    let ends = ARRIVE_MS + LEAVE_MS;
    if (isThere && allowed) {
      x = gate + (TO - gate) * eased(Math.min(1, (age - ARRIVE_MS) / LEAVE_MS));
      // What is written beside it stays for a while.
      if (drop.text.textContent !== "") ends = DENIED_MS;
    } else if (isThere) {
      const back = (age - ARRIVE_MS) / (DENIED_MS - ARRIVE_MS);
      x = gate - 46 * eased(Math.min(1, Math.max(0, back)));
      opacity = 1 - Math.max(0, back) ** 2;
      ends = DENIED_MS;
    }
    if (isStill()) [x, opacity] = [allowed ? TO - 20 : gate - 10, 1];
    const good = status < 400 ? "ok" : "charged";
    set(drop.node, { class: `drop ${!isThere ? "" : allowed ? good : "no"}`, opacity: Math.max(0, opacity) });
    set(drop.cross, { visibility: isThere && !allowed ? "visible" : "hidden" });
    set(drop.dot, { transform: `translate(${x.toFixed(1)} ${ROAD_Y})` });
    // Only the latest one, because they would be above each other.
    const latestThere = live.findLast((one) => one.request.allowed === allowed && (isStill() || now - one.at >= ARRIVE_MS));
    set(drop.text, {
      x: allowed ? gate + 12 : gate - 6, y: ROAD_Y + 20, "text-anchor": allowed ? "start" : "end",
      visibility: drop === latestThere ? "visible" : "hidden",
    });
    return age < ends;
  }

  return {
    node,
    send(requests, now) {
      for (const request of requests) {
        if (live.length >= MOST) break;
        const drop = makeDrop(request);
        drop.at = Math.max(now, latest + APART_MS);
        latest = drop.at;
        live.push(drop);
        layer.append(drop.node);
      }
    },
    /** Shows whether each gate would let a request pass. */
    open(...are) {
      posts.forEach((post, at) => set(post, { class: are[at] ? "gate" : "gate shut" }));
    },
    draw(now) {
      live = live.filter((drop) => {
        const stays = place(drop, now);
        if (!stays) drop.node.remove();
        return stays;
      });
      return live.length > 0;
    },
  };
}
