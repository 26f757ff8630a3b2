// @ts-check
// Many nodes on one page. A reverse proxy shows their consoles below paths of one host, so this page may ask all of them:
// its policy allows its own origin alone.

import { byId, element, part, setFigure, setText, sync } from "./draw.js";
import { askToken, say, seen } from "./gate.js";
import { bytes, duration, hitShare, percent, rate, readsOf, served, span, text, within } from "./model.js";

/** @typedef {import("./model.js").Status} Status */
/** @typedef {{url: string, path: string, status: Status | null, why: string, refused: boolean, due: number}} Node */

const EVERY_MS = 5000, AWAY_MS = 15000, SHOW_MS = 1000;
const AT_ONCE = 5; // a browser has six connections to a host, and what waits for one is no node that is late
const RANKS = ["failing", "away", "degraded", "healthy"];

const given = new URLSearchParams(location.hash.slice(1));
let token = given.get("token") ?? "";
let worst = "", asksToken = false;
const nodes = urlsOf(given.get("nodes") ?? "").map((url) => /** @type {Node} */ (
  { url, path: url.slice(location.origin.length), status: null, why: "not asked yet", refused: false, due: 0 }));
if (token) history.replaceState(null, "", `${location.pathname}#nodes=${given.get("nodes") ?? ""}`);

/**
 * Whole addresses: a path may begin with two slashes, and would lead to another host.
 * @param {string} list @returns {string[]} those of this page's host, each once
 */
function urlsOf(list) {
  const urls = list.split(",").filter(Boolean).flatMap((path) => {
    try { return [new URL(path.endsWith("/") ? path : `${path}/`, location.href)]; } catch { return []; }
  });
  return [...new Set(urls.filter((url) => url.origin === location.origin).map((url) => url.origin + url.pathname))];
}

/** @param {Node} n @returns {string} */
const healthOf = (n) => (n.status ? n.status.health : "away");

/** @param {Node} n */
async function ask(n) {
  try {
    const answer = await fetch(`${n.url}api/status`, { cache: "no-store", signal: within(EVERY_MS),
      headers: token ? { Authorization: `Bearer ${token}` } : {} });
    n.refused = answer.status === 401;
    const status = answer.ok ? /** @type {Status} */ (await answer.json()) : null;
    if (status) status.hops.map((h) => h.hop); // else it is no console that answers
    n.status = status;
    n.why = n.refused ? "it needs another token" : answer.ok ? "" : `it answers ${answer.status}`;
  } catch (error) {
    n.status = null;
    n.refused = false;
    n.why = error instanceof Error ? error.message : String(error);
  }
}

/* ---- the page ---- */

/** @param {Node} n @returns {HTMLElement} */
function makeNode(n) {
  const link = element("a", "title");
  link.setAttribute("href", n.url);
  link.addEventListener("click", (event) => {
    if (!token) return;
    event.preventDefault();
    location.assign(`${n.url}#token=${encodeURIComponent(token)}`);
  });
  const health = element("span", "health", element("span", "mark"), element("span", "what"));
  return element("li", "", element("div", "line", link, health), element("p", "rate"), element("p", "times"), element("p", "why"));
}

/** @param {HTMLElement} row @param {Node} n */
function updateNode(row, n) {
  const s = n.status, reads = s && readsOf(s), word = healthOf(n);
  part("health", row).className = `health is-${word}`;
  setText(part("what", row), word === "away" ? "No answer" : word);
  setText(part("title", row), s?.node ?? n.path);
  setFigure(part("rate", row), rate(reads?.bytes_s ?? 0));
  setText(part("times", row), s && reads ? `${percent(hitShare(s))} from the cache, 99 % within ${text(duration(reads.p99_us))}, ` +
    `${s.exports_total} ${s.exports_total === 1 ? "image" : "images"}, up ${span(s.uptime_ms / 1000)}` : "");
  setText(part("why", row), s?.health_reason ?? n.why);
}

/** @param {Status[]} all */
function showFigures(all) {
  const sum = (/** @type {(s: Status) => number} */ of) => all.reduce((n, s) => n + of(s), 0);
  const cached = sum((s) => served(s, "memory") + served(s, "disk"));
  const read = sum((s) => s.hops.reduce((n, h) => n + served(s, h.hop), 0));
  setFigure(byId("f-read"), rate(sum((s) => readsOf(s)?.bytes_s ?? 0)));
  setFigure(byId("f-store"), rate(sum((s) => s.hops.find((h) => h.hop === "store")?.bytes_s ?? 0)));
  setText(byId("f-hits"), percent(read ? cached / read : null));
  setFigure(byId("f-saved"), bytes(Math.max(0, sum((s) => s.saved.bytes))));
}

function show() {
  const sorted = [...nodes].sort((a, b) => RANKS.indexOf(healthOf(a)) - RANKS.indexOf(healthOf(b)) || a.path.localeCompare(b.path, "en", { numeric: true }));
  const word = sorted.length ? healthOf(sorted[0]) : "away";
  const same = sorted.filter((n) => healthOf(n) === word).length;
  const sentence = word === "healthy" ? "All healthy" : `${same} ${word === "away" ? "without an answer" : word}`;
  byId("health").className = `health is-${word}`;
  setText(part("what", byId("health")), sentence);
  setText(byId("count"), `${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`);
  sync(byId("nodes"), sorted, (n) => n.path, makeNode, updateNode);
  showFigures(nodes.flatMap((n) => (n.status ? [n.status] : [])));
  if (worst && worst !== sentence) say(sentence);
  worst = sentence;
}

const pause = () => new Promise((wake) => setTimeout(wake, SHOW_MS / 4));

/** Ask the node that has waited longest, again and again; some of these run at a time. */
async function askForEver() {
  for (;;) {
    await seen();
    const n = nodes.reduce((first, other) => (other.due < first.due ? other : first));
    if (asksToken || n.due > performance.now()) { await pause(); continue; }
    n.due = Infinity;
    await ask(n);
    n.due = performance.now() + (n.status || n.refused ? EVERY_MS : AWAY_MS);
  }
}

async function showForEver() {
  for (;;) {
    await new Promise((wake) => setTimeout(wake, SHOW_MS));
    show();
    if (!nodes.some((n) => n.refused) || nodes.some((n) => n.status)) continue;
    asksToken = true;
    token = await askToken("The nodes need their token", "It is the line in the file that each was started with (--console-token).", token !== "", false);
    nodes.forEach((n) => { n.refused = false; n.due = Math.min(n.due, 0); });
    asksToken = false;
  }
}

byId("none").hidden = nodes.length > 0;
if (nodes.length) {
  for (let i = 0; i < AT_ONCE; i++) void askForEver();
  void showForEver();
} else setText(part("what", byId("health")), "No nodes are named");
