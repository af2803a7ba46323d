// Charts: lines over the last five minutes, read by pointer, keyboard or as a table.

const SPAN_MS = 300_000;
const MINUTE_MS = 60_000;
const GAP_MS = 3_500;
const EDGES = { left: 64, right: 10, top: 10, bottom: 22 };

// Returns steps of an axis from 0 to at least `most`: three or four round numbers.
function ticks(most) {
  const rough = Math.max(most, 2) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  return Array.from({ length: Math.max(2, Math.ceil(most / step) + 1) }, (_, index) => index * step);
}

// Draws series `{ key, label, area }` of points `{ at, [key]: number or null }` into a host.
function chart(host, { name, unit, series }) {
  const grid = svg("g.grid");
  const paths = series.map(({ key, area }) => ({
    area: area && svg(`path.area.${key}`),
    line: svg(`path.line.${key}`),
    dot: svg(`circle.dot.${key}`, { r: 3.5 }),
  }));
  const cursor = svg("g.cursor", { visibility: "hidden" }, svg("line", { y1: EDGES.top }), paths.map(({ dot }) => dot));
  const plot = svg("svg", { "aria-hidden": "true" }, grid,
    paths.map(({ area }) => area).filter(Boolean), paths.map(({ line }) => line), cursor);
  const reader = el("div", {
    class: "plot", role: "slider", tabindex: 0, "aria-label": `${name}: arrow keys read it second by second`,
    "aria-valuemin": -300, "aria-valuemax": 0, "aria-valuenow": 0,
  }, plot);
  const values = series.map(() => el("b", {}, "-"));
  const ranges = series.map(() => el("small"));
  const at = el("li.at", {}, "now");
  const legend = el("ul.legend", {}, at, series.map(({ key, label }, index) => el("li", {},
    svg("svg", { "aria-hidden": "true" }, svg(`path.line.${key}`, { d: "M1 5H19" })),
    el("span", {}, label), values[index], ranges[index])));
  const body = el("tbody");
  const asTable = el("details", {}, el("summary", {}, "As a table"), el("div.scroll", {},
    el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Half minute"),
      series.map(({ label }) => el("th.number", { scope: "col" }, label)))), body)));
  asTable.addEventListener("toggle", () => tabulate());
  host.replaceChildren(legend, reader, asTable);

  let points = [];
  let end = 0;
  // The time that is read; `null`: the latest.
  let reading = null;
  let scale;

  const show = (value) => value == null ? "-" : `${count(value)}${unit}`;

  function readOut() {
    const chosen = reading === null ? points.at(-1) : nearest(reading);
    const ago = chosen ? Math.round((end - chosen.at) / 1000) : 0;
    const text = ago <= 0 ? "now" : `${duration(ago * 1000)} ago`;
    setText(at, text);
    series.forEach(({ key }, index) => setText(values[index], show(chosen?.[key])));
    // Otherwise a screen reader would read each second.
    if (reading !== null || document.activeElement !== reader) {
      const all = series.map(({ key, label }) => `${label} ${show(chosen?.[key])}`).join(", ");
      set(reader, { "aria-valuenow": -Math.min(300, ago), "aria-valuetext": `${text}: ${all}` });
    }
    const isMarked = reading !== null && chosen && scale;
    set(cursor, { visibility: isMarked ? "visible" : "hidden" });
    if (!isMarked) return;
    const x = scale.x(chosen.at);
    set(cursor.firstChild, { x1: x, x2: x, y2: scale.bottom });
    series.forEach(({ key }, index) => {
      set(paths[index].dot, { visibility: chosen[key] == null ? "hidden" : "inherit", cx: x, cy: scale.y(chosen[key] ?? 0) });
    });
  }

  const nearest = (time) => points.reduce((best, point) =>
    best && Math.abs(best.at - time) <= Math.abs(point.at - time) ? best : point, undefined);

  function move(to) {
    reading = Math.min(end, Math.max(points[0]?.at ?? end, to));
    readOut();
  }

  reader.addEventListener("pointermove", ({ clientX }) => {
    if (scale) move(scale.time(clientX - reader.getBoundingClientRect().left));
  });
  const leave = () => { reading = null; readOut(); };
  reader.addEventListener("pointerleave", leave);
  reader.addEventListener("blur", leave);
  reader.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -30, PageUp: 30, Home: -300, End: 300 };
    if (event.key === "Escape") leave();
    if (!(event.key in steps)) return;
    event.preventDefault();
    move((reading ?? end) + steps[event.key] * 1000);
  });

  // Returns the pieces of a line: a gap in the samples is a gap in the line.
  function pieces(key) {
    const all = [];
    let last = null;
    for (const point of points) {
      if (point[key] == null) continue;
      if (last === null || point.at - last > GAP_MS) all.push([]);
      all.at(-1).push(`${scale.x(point.at).toFixed(1)} ${scale.y(point[key]).toFixed(1)}`);
      last = point.at;
    }
    return all;
  }

  function tabulate() {
    if (!asTable.open) return;
    body.replaceChildren(...Array.from({ length: 10 }, (_, index) => {
      const until = end - index * 30_000;
      const some = points.filter((point) => point.at <= until && point.at > until - 30_000);
      return el("tr", {}, el("th", { scope: "row" }, index === 0 ? "the last" : `${duration(index * 30_000)} ago`),
        series.map(({ key }) => el("td.number", {}, show(mean(some.map((point) => point[key]))))));
    }));
  }

  function draw() {
    const [width, height] = [reader.clientWidth, reader.clientHeight];
    if (!width || !height) return;
    set(plot, { viewBox: `0 0 ${width} ${height}` });
    const most = Math.max(0, ...series.flatMap(({ key }) => points.map((point) => point[key] ?? 0)));
    const steps = ticks(most);
    const [right, bottom] = [width - EDGES.right, height - EDGES.bottom];
    const across = right - EDGES.left;
    // The axis grows with the history, by whole minutes.
    const minutes = Math.min(5, Math.max(1, Math.ceil((end - (points[0]?.at ?? end)) / MINUTE_MS)));
    const span = minutes * MINUTE_MS;
    scale = {
      bottom,
      x: (time) => right - (end - time) / span * across,
      y: (value) => bottom - value / steps.at(-1) * (bottom - EDGES.top),
      time: (x) => end - (right - x) / across * span,
    };
    const labels = steps.flatMap((step) => [
      svg("line", { x1: EDGES.left, x2: right, y1: scale.y(step), y2: scale.y(step) }),
      svg("text", { x: EDGES.left - 8, y: scale.y(step) + 4, "text-anchor": "end" }, `${number.format(step)}${unit}`),
    ]);
    for (let minute = 0; minute <= minutes; minute += 1) {
      const x = right - minute / minutes * across;
      const text = minute === 0 ? "now" : `${minute} min`;
      labels.push(svg("text", { x, y: height - 5, "text-anchor": minute === 0 ? "end" : minute === minutes ? "start" : "middle" }, text));
    }
    grid.replaceChildren(...labels);
    series.forEach(({ key }, index) => {
      const all = pieces(key);
      paths[index].line.setAttribute("d", all.map((piece) => `M${piece.join("L")}`).join(""));
      paths[index].area?.setAttribute("d", all.map((piece) => {
        const [first, last] = [piece[0], piece.at(-1)].map((place) => place.split(" ")[0]);
        return `M${first} ${bottom}L${piece.join("L")}L${last} ${bottom}Z`;
      }).join(""));
      const known = points.map((point) => point[key]).filter((value) => value != null);
      setText(ranges[index], known.length ? `most ${show(Math.max(...known))}` : "");
    });
    readOut();
    tabulate();
  }

  new ResizeObserver(draw).observe(reader);
  return (newPoints, newEnd) => {
    [points, end] = [newPoints, newEnd];
    draw();
  };
}

function mean(values) {
  const known = values.filter((value) => value != null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// Draws the denials of a policy small, ten seconds a step. Nothing if there are none.
function sparkline(values) {
  const steps = Array.from({ length: 30 }, () => 0);
  values.forEach((value, index) => { steps[29 - Math.min(29, Math.floor((values.length - 1 - index) / 10))] += value; });
  const most = Math.max(...steps);
  if (!most) return [];
  const path = steps.map((value, index) => `${index ? "L" : "M"}${(index * 2 + 1)} ${(15 - value / most * 13).toFixed(1)}`).join("");
  return [svg("path.line.denied", { d: path })];
}
