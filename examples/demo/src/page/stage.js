// Draws the pictures that are on screen, as long as one of them moves.

const still = matchMedia("(prefers-reduced-motion: reduce)");
/** Whether the user asked for no motion. Then pictures change only when new numbers are there. */
export const isStill = () => still.matches;

const onScreen = new Map();
let frame = 0;

function drawAll(now) {
  frame = 0;
  let moves = false;
  for (const draw of onScreen.values()) moves = draw(now) || moves;
  if (moves && !isStill()) wake();
}

/** Draws, and goes on if something moves. */
export function wake() {
  if (frame === 0 && !document.hidden) frame = requestAnimationFrame(drawAll);
}

const draws = new Map();
const observer = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    isIntersecting ? onScreen.set(target, draws.get(target)) : onScreen.delete(target);
  }
  wake();
});
document.addEventListener("visibilitychange", wake);
still.addEventListener("change", wake);

/** Has `draw(now)` called for each frame while the node is on screen, until it returns false. */
export function perform(node, draw) {
  draws.set(node, draw);
  observer.observe(node);
}

const FRAME_MS = 32;

/** Makes a number that glides to where it should be. */
export function glide() {
  let value;
  let at = 0;
  return (target, now) => {
    if (value === undefined || isStill()) {
      value = target;
    } else {
      value += (target - value) * (1 - Math.exp(-Math.min(FRAME_MS, now - at) / 110));
      if (Math.abs(target - value) < .004) value = target;
    }
    at = now;
    return value;
  };
}

// What is known of a bucket goes on by the arithmetic of its algorithm.

/** How long until nothing is taken anymore. */
export function resetMs(policy, now) {
  return Math.max(0, policy.reset_after_ms - (now - policy.seen));
}

export const used = (policy) => policy.limit - policy.remaining;

/** The units of a bucket that refills or leaks: what is charged comes back, what is held does not. */
export function level(policy, now) {
  const perMs = policy.rate / policy.period_ms;
  const taken = policy.reset_after_ms * perMs - policy.held;
  return { charged: Math.max(0, taken - Math.max(0, now - policy.seen) * perMs), held: policy.held, perMs };
}
