// Slots, two policies in a row, a counter with holds, and strikes.

import { dial, duration, group, label, set, svg } from "./dom.js";
import { glide, level, resetMs, used } from "./stage.js";
import { road } from "./drops.js";
import { big, tokens } from "./buckets.js";

const GATE = 160;
/** How long the demo's slow response takes. */
const RESPONSE_MS = 5_000;

export function concurrency(name) {
  const way = road([GATE]);
  const count = big("in flight");
  const slots = group();
  let since = [];
  let dials = [];
  return {
    way,
    node: group(slots, count.node, way.node),
    view(policies, requests) {
      const policy = policies[name];
      if (dials.length !== policy.limit) {
        const step = Math.min(58, 190 / policy.limit);
        dials = Array.from({ length: policy.limit }, (_, at) =>
          dial(186 + (at - (policy.limit - 1) / 2) * step, 58, Math.min(23, step / 2 - 3), "slot"));
        slots.replaceChildren(...dials.map(({ node }) => node));
      }
      const starts = requests.filter((request) => request.allowed).map((request) => request.at);
      // Whoever started first ends first.
      since = starts.slice(starts.length - Math.min(starts.length, used(policy)));
      while (since.length < used(policy)) since.unshift(policy.seen - RESPONSE_MS);
      return `${used(policy)} of ${policy.limit} slots taken`;
    },
    draw(policies, now) {
      const policy = policies[name];
      dials.forEach(({ node, turn }, at) => {
        set(node, { class: at < since.length ? "taken" : "free" });
        turn(at < since.length ? Math.min(.98, (now - since[at]) / RESPONSE_MS) : 0);
      });
      count.show(`${since.length}`, since.length >= policy.limit ? "none" : "");
      count.caption(`of ${policy.limit} in flight`);
      way.open(since.length < policy.limit);
      return since.length > 0;
    },
  };
}

/** Cells of a counter: charged, held or free. */
function cells(x, y, columns, size, taken) {
  const node = group();
  return {
    node,
    fill(limit, charged, held) {
      while (node.children.length > limit) node.lastChild.remove();
      for (let at = node.children.length; at < limit; at++) {
        node.append(svg("rect", {
          x: x + (at % columns) * size, y: y + Math.floor(at / columns) * size, width: size - 3, height: size - 3, rx: 2,
        }));
      }
      [...node.children].forEach((cell, at) => set(cell, {
        class: at < charged ? `cell ${taken}` : at < charged + held ? "cell held" : "cell",
      }));
    },
  };
}

/** Time that is left of a window, as a bar that becomes shorter. */
function timeBar(x, y, width) {
  const rest = svg("rect", { x, y, width: 0, height: 5, rx: 2, class: "time" });
  return {
    node: group(svg("rect", { x, y, width, height: 5, rx: 2, class: "trough" }), rest),
    show(part) { set(rest, { width: width * Math.min(1, part) }); },
  };
}

/** A token bucket and a window: a request needs room in both. */
export function both(first, second) {
  const gates = [81, 229];
  const denyAt = (request) => request.denied_by.includes(first) ? gates[0] : gates[1];
  const way = road(gates, denyAt);
  const held = tokens(gates[0], 72, 5, 20);
  const counter = cells(gates[1] - 49, 38, 10, 10, "taken");
  const time = timeBar(gates[1] - 49, 72, 97);
  const captions = [label(gates[0], 94, "caption"), label(gates[1], 94, "caption")];
  const shown = glide();
  return {
    way,
    node: group(
      ...gates.map((x) => svg("rect", { x: x - 59, y: 28, width: 118, height: 74, rx: 6, class: "box" })),
      label(gates[0], 21, "caption", first), label(155, 69, "caption", "and"), label(gates[1], 21, "caption", second),
      held.node, counter.node, time.node, ...captions, way.node),
    view(policies) {
      const [one, two] = [policies[first], policies[second]];
      held.fit(Math.min(10, one.limit));
      return `${one.remaining} of ${one.limit} left in ${first}, and ${two.remaining} of ${two.limit} in ${second}`;
    },
    draw(policies, now) {
      const [one, two] = [policies[first], policies[second]];
      const free = one.limit - level(one, now).charged;
      const left = resetMs(two, now);
      const counted = left > 0 ? used(two) : 0;
      const glided = shown(free, now);
      held.fill(glided);
      counter.fill(Math.min(two.limit, 30), counted, 0);
      time.show(counted > 0 ? left / two.period_ms : 0);
      captions[0].textContent = `${Math.floor(free + 1e-6)} of ${one.limit} left`;
      captions[1].textContent = counted > 0 ? `${counted} of ${two.limit}, ${duration(left)}` : `0 of ${two.limit}`;
      way.open(free >= 1, counted < two.limit);
      return free < one.limit || counted > 0 || glided !== free;
    },
  };
}

/** A counter of which a request holds a unit until its response decides. */
export function heldCounter(name) {
  const way = road([GATE]);
  const count = big("wrong");
  const counter = cells(104, 36, 5, 24, "failed");
  const time = timeBar(104, 74, 117);
  const captions = [label(162, 98, "caption")];
  return {
    way,
    node: group(counter.node, time.node, count.node, ...captions, way.node),
    view(policies) {
      const { limit, remaining, held } = policies[name];
      return `${limit - remaining - held} of ${limit} wrong passwords in this window`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const left = resetMs(policy, now);
      const charged = left > 0 ? used(policy) - policy.held : 0;
      counter.fill(policy.limit, charged, policy.held);
      time.show(charged > 0 ? left / policy.period_ms : 0);
      count.show(String(charged), charged >= policy.limit ? "none" : "");
      captions[0].textContent = charged > 0 ? `window ends in ${duration(left)}` : "right ones are free";
      way.open(charged + policy.held < policy.limit);
      return charged > 0;
    },
  };
}

/** Strikes, and the ban that the last one starts. */
export function penalty(name) {
  const way = road([GATE]);
  const strikes = group();
  const ban = dial(160, 56, 34, "ban");
  const seconds = label(160, 62, "number inside none");
  const caption = label(160, 106, "caption");
  return {
    way,
    node: group(strikes, ban.node, seconds, caption, way.node),
    view(policies) {
      const { limit, remaining, reset_after_ms } = policies[name];
      while (strikes.children.length > limit) strikes.lastChild.remove();
      for (let at = strikes.children.length; at < limit; at++) {
        const x = 160 + (at - (limit - 1) / 2) * Math.min(52, 280 / limit);
        strikes.append(svg("g", { class: "strike", transform: `translate(${x} 56)` },
          svg("circle", { r: 19 }), svg("path", { d: "M-8 -8L8 8M8 -8L-8 8" })));
      }
      return remaining === 0 ? `banned for ${duration(reset_after_ms)}` : `${limit - remaining} of ${limit} strikes`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const left = resetMs(policy, now);
      const isBanned = policy.remaining === 0 && left > 0;
      const struck = left > 0 && !isBanned ? used(policy) : 0;
      [...strikes.children].forEach((one, at) => set(one, { class: at < struck ? "strike struck" : "strike" }));
      set(strikes, { visibility: isBanned ? "hidden" : "visible" });
      set(ban.node, { visibility: isBanned ? "visible" : "hidden" });
      ban.turn(left / Math.max(policy.period_ms, left));
      seconds.textContent = isBanned ? duration(left) : "";
      caption.textContent = isBanned ? "banned" : struck > 0 ? `forgiven in ${duration(left)}` : "no strikes";
      way.open(!isBanned);
      return left > 0;
    },
  };
}
