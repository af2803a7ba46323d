// Buckets: of tokens, of water, and a tank whose units may be held.

import { dial, duration, group, label, set, svg } from "./dom.js";
import { glide, level } from "./stage.js";
import { road } from "./drops.js";

const WALL = "M104 14L111 102Q112 108 118 108H202Q208 108 209 102L216 14";
const INSIDE = `${WALL}Z`;
const [TOP, BOTTOM] = [18, 106];
const GATE = 160;
let clips = 0;

/** A number with what it counts, to the left of a picture. */
export function big(caption) {
  const number = label(50, 60, "number");
  const below = label(50, 78, "caption", caption);
  return {
    node: group(number, below),
    show(text, kind = "") { number.textContent = text; set(number, { class: `number ${kind}` }); },
    caption(text) { below.textContent = text; },
  };
}

/** How long one unit takes, and how much of it is over, to the right of a picture. */
function pace(text) {
  const clock = dial(266, 50, 13);
  const caption = label(266, 82, "caption");
  return {
    node: group(clock.node, caption),
    turn(part, perMs) {
      clock.turn(part);
      caption.textContent = `${text} ${duration(1 / perMs)}`;
    },
  };
}

/** Tokens in rows, from the bottom up. Each is there by a part. */
export function tokens(middle, bottom, columns, size) {
  const node = group();
  return {
    node,
    fit(limit) {
      while (node.children.length > limit) node.lastChild.remove();
      for (let at = node.children.length; at < limit; at++) {
        const row = Math.floor(at / columns);
        const cx = middle + ((at % columns) - (Math.min(columns, limit) - 1) / 2) * size;
        node.append(group(
          svg("circle", { cx, cy: bottom - size * (row + .5), r: size / 2 - 1.5, class: "hollow" }),
          svg("circle", { cx, cy: bottom - size * (row + .5), r: 0, class: "token" })));
      }
    },
    fill(amount) {
      [...node.children].forEach((one, at) => {
        const part = Math.min(1, Math.max(0, amount - at));
        set(one.lastChild, { r: (size / 2 - 1.5) * Math.sqrt(part), class: part < 1 ? "token new" : "token" });
      });
    },
  };
}

/** Tokens that a request takes, and that come back one by one. */
export function tokenBucket(name) {
  const way = road([GATE]);
  const count = big("tokens left");
  const refill = pace("+1 each");
  const shown = glide();
  const held = tokens(GATE, BOTTOM, 5, 18);
  return {
    way,
    node: group(svg("path", { d: WALL, class: "wall" }), held.node, count.node, refill.node, way.node),
    view(policies) {
      held.fit(Math.min(20, policies[name].limit));
      const { remaining, limit } = policies[name];
      return `${remaining} of ${limit} tokens left`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const { charged, perMs } = level(policy, now);
      const free = policy.limit - charged;
      const scale = Math.min(20, policy.limit) / policy.limit;
      const glided = shown(free, now);
      held.fill(glided * scale);
      count.show(String(Math.floor(Math.max(0, free) + 1e-6)), free < 1 ? "none" : "");
      refill.turn(charged > 0 ? free % 1 : 0, perMs);
      way.open(free >= 1);
      return charged > 0 || glided !== free;
    },
  };
}

function waterIn(shape) {
  const id = `bucket-${++clips}`;
  const surface = svg("rect", { x: 100, width: 120, y: BOTTOM, height: 0, class: "water" });
  return {
    surface,
    node: group(svg("clipPath", { id }, svg("path", { d: shape })), svg("g", { "clip-path": `url(#${id})` }, surface)),
    fill(part) {
      const height = (BOTTOM - TOP + 4) * Math.min(1, Math.max(0, part));
      set(surface, { y: 108 - height, height });
    },
  };
}

/** Water that each request adds to, and that leaks. */
export function leakyBucket(name) {
  const way = road([GATE]);
  const count = big("in the bucket");
  const leak = pace("−1 each");
  const water = waterIn(INSIDE);
  const shown = glide();
  const marks = group();
  const falling = [0, 1].map(() => svg("circle", { cx: GATE, r: 2.2, class: "leak" }));
  return {
    way,
    node: group(water.node, marks, svg("path", { d: WALL, class: "wall" }), ...falling, count.node, leak.node, way.node),
    view(policies) {
      const { remaining, limit } = policies[name];
      if (marks.children.length !== limit - 1) {
        marks.replaceChildren(...Array.from({ length: limit - 1 }, (_, at) => {
          const y = 108 - (BOTTOM - TOP + 4) * (at + 1) / limit;
          return svg("path", { d: `M118 ${y}h8M194 ${y}h8`, class: "mark" });
        }));
      }
      return `water of ${limit - remaining} requests; it holds ${limit}`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const { charged, perMs } = level(policy, now);
      const glided = shown(charged, now);
      water.fill(glided / policy.limit);
      falling.forEach((drop, at) => {
        const part = (now / 700 + at / 2) % 1;
        set(drop, { cy: 108 + 16 * part * part, opacity: charged > 0 ? 1 - part : 0 });
      });
      count.show(charged.toFixed(1), policy.limit - charged < 1 ? "none" : "");
      leak.turn(charged > 0 ? 1 - charged % 1 : 0, perMs);
      way.open(policy.limit - charged >= 1);
      return charged > 0 || glided !== charged;
    },
  };
}

/** A tank of many units, of which requests hold some until their cost is known. */
export function heldTank(name) {
  const way = road([GATE]);
  const count = big("tokens left");
  const free = waterIn(INSIDE);
  const onHold = svg("rect", { x: 100, width: 120, y: 50, height: 0, class: "held" });
  free.surface.parentNode.append(onHold);
  const [freeShown, heldShown] = [glide(), glide()];
  const captions = [label(266, 42, "caption"), label(266, 62, "caption on-hold"), label(266, 82, "caption")];
  return {
    way,
    node: group(free.node, svg("path", { d: WALL, class: "wall" }), count.node, ...captions, way.node),
    view(policies) {
      const { remaining, limit, held } = policies[name];
      return `${remaining} of ${limit} tokens left, ${held} held`;
    },
    draw(policies, now) {
      const policy = policies[name];
      const { charged, held, perMs } = level(policy, now);
      const left = policy.limit - charged - held;
      const [ofFree, ofHeld] = [freeShown(left, now), heldShown(held, now)];
      free.fill(ofFree / policy.limit);
      set(free.surface, { class: "water tokens" });
      const height = (BOTTOM - TOP + 4) * Math.max(0, ofHeld) / policy.limit;
      set(onHold, { height, y: Number(free.surface.getAttribute("y")) - height });
      count.show(String(Math.floor(left + 1e-6)), left < policy.cost ? "none" : "");
      captions[0].textContent = `${Math.ceil(charged - 1e-6)} used`;
      captions[1].textContent = `${held} held`;
      captions[2].textContent = `+${Math.round(perMs * 1000)} each second`;
      way.open(left >= policy.cost);
      return charged > 0 || ofFree !== left || ofHeld !== held;
    },
  };
}
