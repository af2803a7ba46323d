// Windows on a time axis that moves left: "now" stays where it is.

import { duration, group, label, set, svg } from "./dom.js";
import { resetMs, used } from "./stage.js";
import { road } from "./drops.js";

export const NOW = 200;
const PERIOD = 120;
export const [TOP, BOTTOM] = [30, 98];
let clips = 0;

/** Makes a time axis for a policy. */
export function axis() {
  const id = `axis-${++clips}`;
  const moving = svg("g", { "clip-path": `url(#${id})` });
  const now = group(
    svg("path", { d: `M${NOW} ${TOP - 8}V${BOTTOM + 6}`, class: "now" }),
    label(NOW + 16, BOTTOM + 14, "caption", "now"));
  return {
    moving,
    node: group(
      svg("clipPath", { id }, svg("rect", { x: 8, y: 0, width: 304, height: BOTTOM + 8 })),
      svg("path", { d: `M8 ${BOTTOM}H312`, class: "axis" }), moving, now),
    /** Where a time is, in milliseconds before now. */
    x: (agoMs, policy) => NOW - PERIOD * agoMs / policy.period_ms,
  };
}

/** Marks of requests, at their times. */
export function marks(parent) {
  const node = group();
  parent.append(node);
  return (times) => {
    while (node.children.length > times.length) node.lastChild.remove();
    while (node.children.length < times.length) node.append(svg("circle", { r: 5 }));
    times.forEach(({ x, y, kind }, at) => set(node.children[at], { cx: x, cy: y, class: kind }));
  };
}

/** Marks of units above each other, so that those at the same time are all visible. */
export const stacked = (at, rows = 5) => BOTTOM - 9 - (at % rows) * 12;

/** The units that the caller's requests took, each with its time; the oldest first. */
export function unitsOf(requests) {
  return requests.filter((request) => request.allowed)
    .flatMap((request) => Array.from({ length: Math.min(20, request.cost) }, () => request.at));
}

/** A counter that starts anew with each window. */
export function fixedWindow(name) {
  const way = road([NOW]);
  const line = axis();
  const count = label(12, 18, "count");
  const ends = label(0, TOP - 12, "caption");
  const hint = label(NOW - PERIOD * .85, 68, "caption", "the next request starts a window");
  const frames = [0, 1].map(() => svg("rect", { y: TOP, height: BOTTOM - TOP, width: PERIOD, rx: 4 }));
  line.moving.append(...frames, ends);
  const dots = marks(line.moving);
  let latest;
  let former;
  return {
    way,
    node: group(line.node, hint, count, way.node),
    view(policies) {
      const { remaining, limit } = policies[name];
      return `${limit - remaining} of ${limit} counted in this window`;
    },
    draw(policies, now, requests) {
      const policy = policies[name];
      const left = resetMs(policy, now);
      const isOpen = left > 0 && used(policy) > 0;
      const counted = isOpen ? used(policy) : 0;
      if (isOpen) {
        const end = now + left;
        if (latest && Math.abs(latest.end - end) > 500 && latest.end < end) former = latest.end <= end - policy.period_ms + 100 ? latest : undefined;
        latest = { end, counted };
      } else if (latest) {
        former = latest;
        latest = undefined;
      }
      const shown = [latest, former];
      const all = [];
      let moves = isOpen;
      shown.forEach((window, at) => {
        const x = window ? line.x(now - window.end + policy.period_ms, policy) : -400;
        set(frames[at], { x, class: at === 0 ? "window" : "window past" });
        if (!window || x < -PERIOD) return;
        moves = true;
        const start = window.end - policy.period_ms;
        const known = unitsOf(requests).filter((time) => time >= start - 60 && time < window.end).slice(-window.counted);
        // Another process counted these, or they came before this page.
        while (known.length < window.counted) known.unshift(start);
        known.forEach((time, nth) => all.push({
          x: Math.max(x + 7, line.x(now - time, policy) - 1), y: stacked(nth), kind: at === 0 ? "unit" : "unit past",
        }));
      });
      dots(all);
      set(ends, { x: Math.min(274, NOW + PERIOD * left / policy.period_ms), visibility: isOpen ? "visible" : "hidden" });
      ends.textContent = "window ends";
      count.textContent = isOpen
        ? `${counted} of ${policy.limit} · ends in ${duration(left)}`
        : `0 of ${policy.limit}`;
      set(hint, { visibility: isOpen || moves ? "hidden" : "visible" });
      way.open(counted < policy.limit);
      return moves;
    },
  };
}
