// Windows that end now: one estimated from two counters, one with a mark for each request.

import { duration, group, label, set, svg } from "./dom.js";
import { used } from "./stage.js";
import { road } from "./drops.js";
import { BOTTOM, NOW, TOP, axis, marks, stacked, unitsOf } from "./windows.js";

const PERIOD = 120;

/** Computes both counters from what is left, and from the times of the caller's requests. */
function counters(policy, requests) {
  const { period_ms: period } = policy;
  const endsIn = period - policy.at_ms % period;
  const start = policy.seen + endsIn - period;
  const units = unitsOf(requests);
  const within = (from) => units.filter((time) => time >= from && time < from + period).length;
  const weight = (previous) => Math.ceil(previous * endsIn / period - 1e-9);
  let [previous, current] = [within(start - period), within(start)];
  if (current + weight(previous) !== used(policy)) {
    // Other processes counted, too.
    if (policy.reset_after_ms <= endsIn) [previous, current] = [Math.floor(used(policy) * period / endsIn), 0];
    previous = Math.min(previous, policy.limit);
    current = Math.max(0, used(policy) - weight(previous));
  }
  return { end: policy.seen + endsIn, previous, current };
}

/** The counters at a later time. */
function later({ end, previous, current }, period, now) {
  while (now >= end) {
    [previous, current] = [current, 0];
    end += period;
  }
  const part = (end - now) / period;
  return { end, previous, current, part, sum: current + Math.ceil(previous * part - 1e-9) };
}

export function slidingWindow(name) {
  const way = road([NOW]);
  const line = axis();
  const count = label(12, 18, "count");
  const [former, present] = ["window past", "window"].map((kind) => svg("rect", { y: TOP, height: BOTTOM - TOP, width: PERIOD, rx: 4, class: kind }));
  const counted = svg("rect", { y: TOP, height: BOTTOM - TOP, width: 0, class: "counted" });
  const [ofFormer, ofPresent] = ["", ""].map(() => label(0, 73, "number"));
  const weight = label(0, 90, "caption");
  const frame = svg("rect", { x: NOW - PERIOD, y: TOP - 4, width: PERIOD, height: BOTTOM - TOP + 8, rx: 4, class: "slide" });
  line.moving.append(former, present, counted, ofFormer, ofPresent, weight);
  let known;
  return {
    way,
    node: group(line.node, frame, count, way.node),
    view(policies, requests) {
      const policy = policies[name];
      known = counters(policy, requests);
      return `about ${used(policy)} of ${policy.limit} in the last ${duration(policy.period_ms)}`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const { end, previous, current, part, sum } = later(known, policy.period_ms, now);
      const boundary = line.x(now - end + policy.period_ms, policy);
      set(former, { x: boundary - PERIOD });
      set(present, { x: boundary });
      set(counted, { x: NOW - PERIOD, width: Math.max(0, boundary - NOW + PERIOD), visibility: previous > 0 ? "visible" : "hidden" });
      ofFormer.textContent = String(previous);
      set(ofFormer, { x: Math.max(24, boundary - PERIOD / 2), class: previous > 0 ? "number" : "number faint" });
      ofPresent.textContent = String(current);
      set(ofPresent, { x: Math.min(boundary + PERIOD / 2, 290), class: current > 0 ? "number" : "number faint" });
      weight.textContent = `× ${Math.round(part * 100)} %`;
      set(weight, { x: Math.max(24, boundary - PERIOD / 2), visibility: previous > 0 ? "visible" : "hidden" });
      count.textContent = previous > 0
        ? `${previous} × ${Math.round(part * 100)} % + ${current} → ${sum} of ${policy.limit}`
        : `${sum} of ${policy.limit}`;
      way.open(sum < policy.limit);
      return previous + current > 0;
    },
  };
}

export function slidingLog(name) {
  const way = road([NOW]);
  const line = axis();
  const count = label(12, 18, "count");
  const frame = svg("rect", { x: NOW - PERIOD, y: TOP, width: PERIOD, height: BOTTOM - TOP, rx: 4, class: "window" });
  const last = label(NOW - PERIOD, BOTTOM + 14, "caption");
  line.moving.append(frame);
  const dots = marks(line.moving);
  return {
    way,
    node: group(line.node, last, count, way.node),
    view(policies) {
      const policy = policies[name];
      return `${used(policy)} of ${policy.limit} requests in the last ${duration(policy.period_ms)}`;
    },
    draw(policies, now, requests) {
      const policy = policies[name];
      const period = policy.period_ms;
      const units = unitsOf(requests);
      const ofSight = units.filter((time) => time > policy.seen - period);
      // The store may count requests of other processes, and an operator may have reset it.
      const inside = ofSight.slice(ofSight.length - Math.min(ofSight.length, used(policy)));
      const resets = policy.seen + policy.reset_after_ms - period;
      while (inside.length < used(policy)) inside.unshift(resets);
      const counted = inside.filter((time) => time > now - period);
      const past = [...units, ...inside].filter((time) => time <= now - period && time > now - 2 * period);
      const shown = (kind) => (time) => ({ x: line.x(now - time, policy), y: stacked(Math.max(0, units.indexOf(time))), kind });
      dots([...new Set(past)].map(shown("unit past")).concat(counted.map((time, at) => ({ ...shown("unit")(time), y: stacked(at) }))));
      const next = counted.length > 0 ? counted[0] + period - now : 0;
      count.textContent = `${counted.length} of ${policy.limit}${counted.length > 0 ? ` · next leaves in ${duration(next)}` : ""}`;
      last.textContent = `${duration(period)} ago`;
      way.open(counted.length < policy.limit);
      return counted.length + past.length > 0;
    },
  };
}
