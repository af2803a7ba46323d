// The routes, each with its picture.

import { heldTank, leakyBucket, tokenBucket } from "./buckets.js";
import { queue } from "./queue.js";
import { slidingLog, slidingWindow } from "./sliding.js";
import { both, concurrency, heldCounter, penalty } from "./slots.js";
import { fixedWindow } from "./windows.js";

export const ROUTES = [
  { name: "Token bucket", method: "GET", path: "/api/token-bucket", policies: ["bucket"], picture: tokenBucket,
    text: "Each request takes a token; one comes back each second, and ten fit in." },
  { name: "Leaky bucket", method: "GET", path: "/api/leaky-bucket", policies: ["leaky"], picture: leakyBucket,
    text: "Each request pours one in, one leaks out each second, and what would overflow is denied." },
  { name: "Leaky bucket as a queue", method: "GET", path: "/api/paced", policies: ["paced"], picture: queue,
    text: "One goes on at once, and up to ten wait in line: they go on evenly spaced, two each second." },
  { name: "Fixed window", method: "GET", path: "/api/fixed-window", policies: ["window"], picture: fixedWindow,
    text: "Your first request starts a window of 10 seconds: five fit in, and its end clears the counter." },
  { name: "Sliding window", method: "GET", path: "/api/sliding-window", policies: ["sliding"], picture: slidingWindow,
    text: "Ten in any 10 seconds, estimated: this window’s count, and the part of the last one that still counts." },
  { name: "Sliding log", method: "GET", path: "/api/sliding-log", policies: ["log"], picture: slidingLog,
    text: "Five in any 10 seconds, exactly: each request is a mark that leaves after 10 seconds." },
  { name: "Concurrency", method: "GET", path: "/api/concurrency", policies: ["in-flight"], picture: concurrency,
    text: "Two requests in flight at a time; a response takes 5 seconds, and its end frees the slot." },
  { name: "Two policies", method: "GET", path: "/api/stacked", policies: ["burst", "minute"], picture: both,
    text: "A request needs room in both, and is charged to both or to none." },
  { name: "Cost", method: "POST", path: "/api/weighted", policies: ["weight"], picture: tokenBucket, input: "cost",
    text: "A request takes as many tokens as it costs; two come back each second, and above 20 never fits (403)." },
  { name: "Wrong passwords", method: "POST", path: "/api/login", policies: ["wrong-passwords"], picture: heldCounter, input: "password",
    text: "A login holds one of five, and the response decides: wrong is charged, right gives it back." },
  { name: "Tokens of a stream", method: "POST", path: "/api/tokens", policies: ["tokens"], picture: heldTank,
    text: "A stream holds 40 tokens while it lasts, and is charged the 10 that it used." },
  { name: "Penalty", method: "GET", path: "/api/penalty", policies: ["strikes"], picture: penalty, input: "page",
    text: "A missing page is a strike; the third one within 10 seconds bans you for 10 seconds." },
  { name: "No limit", method: "GET", path: "/health", policies: [],
    text: "Health checks are not limited." },
];
