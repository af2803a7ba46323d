// Elements, also of SVG.

export const byId = (id) => document.getElementById(id);

/** Makes an element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    key.includes("-") || key === "role" ? made.setAttribute(key, value) : made[key] = value;
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  // Screen readers announce each change.
  if (node.textContent !== text) node.textContent = text;
}

export function parse(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

const SVG = "http://www.w3.org/2000/svg";

/** Sets attributes of SVG. Numbers are rounded, so that an equal picture is equal text. */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    const text = typeof value === "number" ? String(Math.round(value * 100) / 100) : String(value);
    if (node.getAttribute(key) !== text) node.setAttribute(key, text);
  }
  return node;
}

/** Makes an element of SVG. */
export function svg(name, attributes = {}, ...children) {
  const made = set(document.createElementNS(SVG, name), attributes);
  made.append(...children);
  return made;
}

export const group = (...children) => svg("g", {}, ...children);

export function label(x, y, kind, text = "") {
  return svg("text", { x, y, class: kind }, text);
}

/** A circle that fills like a clock. */
export function dial(x, y, radius, kind = "dial") {
  const around = 2 * Math.PI * radius;
  const hand = svg("circle", { cx: x, cy: y, r: radius, class: `${kind}-hand`, transform: `rotate(-90 ${x} ${y})`, "stroke-dasharray": around });
  return {
    node: group(svg("circle", { cx: x, cy: y, r: radius, class: kind }), hand),
    turn(part) { set(hand, { "stroke-dashoffset": around * (1 - Math.min(1, Math.max(0, part))) }); },
  };
}

/** "0.4 s", "12 s", "3 min". */
export function duration(ms) {
  if (ms >= 90_000) return `${Math.round(ms / 60_000)} min`;
  const digits = ms >= 9_950 || ms % 1000 === 0 ? 0 : 1;
  return `${(ms / 1000).toFixed(digits)} s`;
}
