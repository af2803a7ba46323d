// Sends requests and shows their responses.

import { byId, element, parse, setText } from "./dom.js";

const MAX_MARKS = 24;

/** Whether a header is about limits, which is what this page is for. */
const isAboutLimits = ([name]) => /^(x-)?ratelimit|^retry-after$|^x-decided-by$/.test(name);

/** Who the visitor is. */
export function headers() {
  const key = byId("api-key").value;
  return key ? { "x-api-key": key } : {};
}

export function pathOf(route) {
  const value = route.input ? byId(route.input).value : "";
  return value !== "" ? `${route.path}?${route.input}=${encodeURIComponent(value)}` : route.path;
}

export async function request(route) {
  const path = pathOf(route);
  const started = performance.now();
  try {
    const response = await fetch(path, { method: route.method, headers: headers(), cache: "no-store" });
    const body = await response.text();
    const json = parse(body);
    const waitS = Number(response.headers.get("retry-after"));
    return {
      // A wrong password and a missing page were allowed, too.
      kind: response.ok ? "allowed" : [401, 404].includes(response.status) ? "charged" : "denied",
      status: `${response.status} ${response.statusText}`.trim(),
      // The body has ended, too.
      ms: Math.round(performance.now() - started),
      waitS, retryAt: performance.now() + 1000 * waitS,
      detail: json?.detail ?? (json?.held_ms ? `Waited ${json.held_ms} ms for its turn.` : ""),
      fields: [...response.headers],
      body: json ? JSON.stringify(json, null, 2) : body || "(empty)",
    };
  } catch (error) {
    return { kind: "failed", status: "No response", ms: Math.round(performance.now() - started), waitS: 0, detail: error.message, fields: [], body: "(none)" };
  }
}

function showFields(list, fields) {
  list.replaceChildren(...fields.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** Makes the part of a card that shows its responses: a mark for each, and one of them in full. */
export function responsePanel(name) {
  const marks = element("div", { className: "marks", role: "group", "aria-label": `Responses of ${name}, the newest last` });
  const summary = element("p", { className: "summary" });
  const status = element("b");
  const after = element("span", { className: "quiet" });
  const wait = element("b", { className: "wait" });
  const countdown = element("span", { className: "quiet", "aria-hidden": "true" });
  const detail = element("p");
  const limits = element("dl");
  const others = element("dl");
  const body = element("pre");
  const announced = element("div", { role: "status" }, summary,
    element("div", { className: "line" }, status, after), element("div", { className: "line" }, wait, countdown), detail);
  const rest = element("details", { hidden: true }, element("summary", {}, "Other headers and body"), others, body);
  const panel = element("div", { className: "response", hidden: true }, marks, announced, limits, rest);
  let shown;

  function show(response, mark) {
    shown = response;
    for (const one of marks.children) one.setAttribute("aria-pressed", one === mark);
    status.className = response.kind;
    setText(status, response.status);
    setText(after, `after ${response.ms} ms`);
    setText(wait, response.waitS > 0 ? `Wait ${response.waitS} s` : "");
    setText(detail, response.detail);
    showFields(limits, response.fields.filter(isAboutLimits));
    showFields(others, response.fields.filter((field) => !isAboutLimits(field)));
    setText(body, response.body);
    rest.hidden = false;
    countDown();
  }

  function countDown() {
    const leftMs = shown?.waitS > 0 ? shown.retryAt - performance.now() : undefined;
    setText(countdown, leftMs === undefined ? "" : leftMs > 0 ? `${(leftMs / 1000).toFixed(1)} s left` : "over");
  }

  return {
    panel, countDown,
    /** Adds the mark of a request that was just sent; returns what shows its response. */
    sent() {
      panel.hidden = false;
      const mark = element("button", { type: "button", className: "pending", disabled: true, "aria-label": "Waiting for the response" }, "…");
      marks.append(mark);
      while (marks.children.length > MAX_MARKS) marks.firstChild.remove();
      return (response) => {
        mark.className = response.kind;
        mark.disabled = false;
        mark.textContent = { allowed: "✓", charged: "✓", denied: "✕", failed: "!" }[response.kind];
        mark.setAttribute("aria-label", `${response.status} after ${response.ms} ms`);
        mark.title = mark.getAttribute("aria-label");
        mark.addEventListener("click", () => show(response, mark));
        show(response, mark);
      };
    },
    setBusy(isBusy) {
      // Screen readers announce the outcome once, not each of a hundred responses.
      announced.setAttribute("aria-busy", isBusy);
    },
    summarize(text) { setText(summary, text); },
  };
}
