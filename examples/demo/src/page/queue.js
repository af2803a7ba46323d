// The queue of a leaky bucket: requests wait, and leave evenly spaced.

import { dial, duration, group, label, set, svg } from "./dom.js";
import { level } from "./stage.js";
import { road } from "./drops.js";
import { big } from "./buckets.js";

const [GATE, Y, STEP] = [234, 68, 20];

export function queue(name) {
  const way = road([160]);
  const count = big("waiting");
  const places = group();
  const waiting = group();
  const turn = dial(GATE + 36, Y, 12);
  const pace = label(GATE + 36, Y + 34, "caption");
  return {
    way,
    node: group(
      places, waiting, svg("path", { d: `M${GATE} ${Y - 18}V${Y + 18}`, class: "gate" }),
      turn.node, pace, svg("g", { transform: "translate(-24 -34)" }, count.node), way.node),
    view(policies) {
      const { limit, remaining } = policies[name];
      const most = limit - 1;
      while (places.children.length > most) places.lastChild.remove();
      for (let at = places.children.length; at < most; at++) {
        places.append(svg("circle", { cx: GATE - 14 - STEP * at, cy: Y, r: 7, class: "hollow" }));
      }
      return `${Math.max(0, limit - remaining - 1)} of ${most} places of the queue are taken`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const { charged, perMs } = level(policy, now);
      // Each leaves when the level comes to a whole number; the last one at 1.
      const requests = Math.max(0, Math.ceil(charged - 1 - 1e-6));
      while (waiting.children.length > requests) waiting.lastChild.remove();
      while (waiting.children.length < requests) {
        waiting.append(svg("circle", { r: 7, cy: Y, class: "waits" }));
      }
      [...waiting.children].forEach((dot, at) => {
        const turnsLeft = charged - requests + at;
        set(dot, { cx: GATE - 14 - STEP * (turnsLeft - 1) });
      });
      count.show(String(requests), requests >= policy.limit - 1 ? "none" : "");
      turn.turn(charged > 0 ? 1 - charged % 1 : 0);
      pace.textContent = `one each ${duration(1 / perMs)}`;
      way.open(policy.limit - charged >= 1);
      return charged > 0;
    },
  };
}
