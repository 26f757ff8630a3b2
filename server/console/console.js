// @ts-check
// The page asks once a second and shows the answer. It does not ask while nobody sees it.

import { openActions } from "./actions.js";
import { byId, drawFlow, drawSpark, drawStrip, element, part, setAttribute, setFigure, setText, svg, sync } from "./draw.js";
import { askToken, say, seen } from "./gate.js";
import { HOP_NAMES, brief, bytes, count, duration, hitShare, percent, rate, readsOf, served, slowWords, span, stripWords, text, warmWords, within } from "./model.js";

/** @typedef {import("./model.js").Status} Status */

const EVERY_MS = 1000, SLOWER_MS = 5000, LATE_MS = 5000, SPARK = 120;

let token = takeFragment();
let asked = false; // a token was asked for, and a wrong one given
let answered = 0;  // when the last answer came, on performance.now()
let health = "";
/** @type {number[][]} */
let sparks = [];
/** @type {Status | null} */
let latest = null;

/** A screen on the wall has no keyboard: its address may end in #token=TOKEN, which no server sees. */
function takeFragment() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given;
}

/* ---- the head ---- */

/** @param {Status} s */
function showHead(s) {
  document.body.className = "";
  setText(byId("node"), s.node);
  document.title = s.health === "healthy" ? `Granary ${s.node}` : `${s.health}: Granary ${s.node}`;
  byId("health").className = `health is-${s.health}`;
  setText(part("what", byId("health")), s.health[0].toUpperCase() + s.health.slice(1));
  setText(byId("uptime"), `up ${span(s.uptime_ms / 1000)}${s.fence === "warmed" ? ", cache only" : ""}`);
  setText(byId("version"), s.version);
  setText(byId("fresh"), "");
  const reason = byId("reason");
  reason.hidden = !s.health_reason;
  reason.className = s.health === "failing" ? "reason is-failing-reason" : "reason";
  setText(reason, brief(s.health_reason ?? ""));
  byId("unlock").hidden = !s.acts;
  if (health && health !== s.health) say(`The server is ${s.health}. ${s.health_reason ?? ""}`);
  health = s.health;
}

/**
 * No answer: what is shown is old.
 * @param {string} why
 */
function showAway(why) {
  const seconds = answered ? (performance.now() - answered) / 1000 : 0;
  if (answered && seconds * 1000 < LATE_MS) return;
  document.body.className = "stale";
  byId("health").className = "health is-away";
  setText(part("what", byId("health")), "No answer");
  setText(byId("fresh"), seconds ? `for ${span(Math.round(seconds))}: ${why}` : why);
  if (health !== "away") say(`The server does not answer. ${why}`);
  health = "away";
}

/* ---- figures ---- */

/** @param {Status} s */
function showFigures(s) {
  const reads = readsOf(s);
  if (!reads) return;
  const hits = hitShare(s);
  const clients = s.exports.reduce((n, e) => n + e.clients, 0);
  const takers = s.hops.slice(1).map((h) => h.hop);
  if (latest?.uptime_ms !== s.uptime_ms) sparks = [...sparks, takers.map((hop) => served(s, hop))].slice(-SPARK);
  setFigure(byId("f-read"), rate(reads.bytes_s));
  drawSpark(byId("f-spark"), takers, sparks, SPARK);
  setFigure(byId("f-reads"), count(reads.requests_s));
  setText(byId("f-clients"), `by ${clients} ${clients === 1 ? "client" : "clients"}`);
  setText(byId("f-hits"), percent(hits));
  setText(byId("f-hits-all"), `${percent(s.hit_ratio)} since the start`);
  setFigure(byId("f-p99"), duration(reads.p99_us));
  setText(byId("f-p50"), `half within ${text(duration(reads.p50_us))}`);
  setFigure(byId("f-saved"), bytes(Math.max(0, s.saved.bytes)));
  setText(byId("f-saved-requests"), `and ${text(count(Math.max(0, s.saved.requests)))} store requests`);
}

/* ---- the way of a read ---- */

/** @param {import("./model.js").Hop} h @returns {HTMLElement} */
function makeHop(h) {
  return element("li", `h-${h.hop}`, element("p", "name", HOP_NAMES[h.hop] ?? h.hop), element("p", "rate"), element("p", "often"), element("p", "times"));
}

/** @param {HTMLElement} row @param {import("./model.js").Hop} h */
function updateHop(row, h) {
  row.classList.toggle("none", !h.bytes_s && !h.requests_s);
  setFigure(part("rate", row), rate(h.bytes_s));
  setText(part("often", row), `${text(count(h.requests_s))} a second`);
  setText(part("times", row), h.p50_us === null ? "" : `half within ${text(duration(h.p50_us))}, 99 % within ${text(duration(h.p99_us))}`);
}

/** @param {Status} s */
function showWay(s) {
  const used = s.hops.filter((h) => h.hop !== "proxies" || s.l2.length > 0);
  drawFlow(byId("flow"), used.map((h) => ({ hop: h.hop, served: served(s, h.hop) })));
  sync(byId("hops"), used, (h) => h.hop, makeHop, updateHop);
}

/* ---- images ---- */

/** @param {import("./model.js").Export} e @returns {HTMLElement} */
function makeImage(e) {
  const strip = svg("svg", { class: "strip", preserveAspectRatio: "none", role: "img" });
  const more = element("button", "more", "···");
  more.setAttribute("type", "button");
  more.setAttribute("aria-haspopup", "dialog");
  more.setAttribute("aria-label", `Act on ${e.name}`);
  more.addEventListener("click", () => void openActions(e.name));
  return element("li", "", element("span", "title", e.name, element("small", "warming")), element("span", "size"), strip, element("span", "share"),
    element("span", "rate"), element("span", "clients"), more);
}

/** @param {HTMLElement} row @param {import("./model.js").Export} e */
function updateImage(row, e) {
  const strip = /** @type {SVGElement} */ (part("strip", row));
  setText(part("size", row), text(bytes(e.size)));
  setText(part("rate", row), text(rate(e.rates?.read_bytes ?? 0)));
  part("rate", row).classList.toggle("none", !e.rates?.read_bytes);
  setText(part("share", row), percent(e.cached_share));
  setText(part("clients", row), `${e.clients} ${e.clients === 1 ? "client" : "clients"}`);
  setText(part("warming", row), warmWords(e));
  drawStrip(strip, e.strip);
  setAttribute(strip, "aria-label", `${e.name}: ${stripWords(e)}`);
  /** @type {HTMLElement} */ (part("more", row)).hidden = !latest?.acts;
}

/** @param {Status} s */
function showImages(s) {
  const wanted = /** @type {HTMLInputElement} */ (byId("filter")).value.trim().toLowerCase();
  const shown = s.exports.filter((e) => !wanted || e.name.toLowerCase().includes(wanted));
  const more = s.exports_total - s.exports.length;
  setText(byId("images-n"), `${shown.length < s.exports.length ? `${shown.length} of ` : ""}${s.exports_total}`);
  sync(byId("images"), shown, (e) => `${e.name}\n${e.digest}`, makeImage, updateImage);
  byId("images-none").hidden = s.exports_total > 0;
  byId("images-more").hidden = more <= 0;
  setText(byId("images-more"), `${more} more are not shown here; granary status has all of them.`);
}

/* ---- parts ---- */

/**
 * @typedef {{key: string, title: string, state: string, why: string, bad: boolean, share?: number, memory?: boolean}} Part
 */

/** @returns {HTMLElement} */
function makePart() {
  return element("li", "", element("div", "line", element("span", "title"), element("span", "state")),
    element("div", "bar", element("i", "fill")), element("p", "why note"));
}

/** @param {HTMLElement} row @param {Part} p */
function updatePart(row, p) {
  const fill = /** @type {HTMLElement} */ (part("fill", row)), why = /** @type {HTMLElement} */ (part("why", row));
  row.classList.toggle("bad", p.bad);
  setText(part("title", row), p.title);
  setText(part("state", row), p.state);
  setText(why, p.why);
  why.hidden = !p.why;
  /** @type {HTMLElement} */ (part("bar", row)).hidden = p.share === undefined;
  fill.style.width = `${((p.share ?? 0) * 100).toFixed(1)}%`;
  fill.classList.toggle("memory", !!p.memory);
}

/** @param {string} id @param {Part[]} parts */
function showParts(id, parts) {
  sync(byId(id), parts, (p) => p.key, makePart, updatePart);
}

/** @param {import("./model.js").Store} st @returns {Part} */
function storePart(st) {
  const since = st.failing_s ? ` for ${span(st.failing_s)}` : "";
  const waits = st.read_waits_s ? `A read has been waiting for ${span(st.read_waits_s)}. ` : "";
  return { key: `${st.url}\n${st.export ?? ""}`, title: st.export ? `${st.url} (keys of ${st.export})` : st.url,
    state: `${st.state}${since}`, why: waits + brief((st.error ?? "").replace(`store ${st.url}: `, "")), bad: st.state !== "answering" };
}

/** @param {Status} s @returns {Part[]} */
function cacheParts(s) {
  const c = s.counters;
  const fill = (/** @type {string} */ key, /** @type {string} */ title, /** @type {number} */ used, /** @type {number} */ of, memory = false) =>
    ({ key, title, state: `${text(bytes(used))} of ${text(bytes(of))}`, why: "", bad: false, share: of ? used / of : 0, memory });
  const parts = [];
  if (c.granary_cache_memory_capacity_bytes)
    parts.push(fill("memory", "Memory", c.granary_cache_memory_used_bytes, c.granary_cache_memory_capacity_bytes, true));
  if (c.granary_cache_capacity_bytes) parts.push(fill("disk", "SSD", c.granary_cache_used_bytes, c.granary_cache_capacity_bytes));
  return [...parts, ...s.cache_directories.map(diskPart)];
}

/** @param {import("./model.js").Disk} d @returns {Part} */
function diskPart(d) {
  const works = d.reading === "normal" && d.writing === "normal";
  const why = d.deleted ? "Its files were deleted; the server uses them as long as it runs."
    : works ? "" : `Reading is ${d.reading}, writing is ${d.writing}: look at the disk; what it had is fetched again.`;
  return { key: d.path, title: d.path, state: works ? text(bytes(d.size)) : "degraded", why, bad: !works || d.deleted };
}

/** @param {Status} s @returns {Part[]} */
function proxyParts(s) {
  const proxies = s.l2.map((p) => ({ key: p.url, title: p.url, state: p.state, bad: p.state === "down",
    why: `${text(bytes(p.bytes))} in ${text(count(p.requests))} requests${p.failures ? `, ${p.failures} failed` : ""}${p.wrong ? `, ${p.wrong} with wrong bytes` : ""}` }));
  const lists = s.l2_lists.filter((l) => l.error).map((l) => ({ key: `list ${l.list}`, title: l.list,
    state: `not up to date for ${span(l.failing_s ?? 0)}`, bad: true, why: l.error ?? "" }));
  return [...lists, ...proxies];
}

/** @param {import("./model.js").Keeper} k @returns {Part} */
function keeperPart(k) {
  const bad = k.state !== "keeping";
  const how = bad ? `Its reconnect daemon reports nothing: it has ended, or cannot connect the device (its log says why). If it has ended, run 'granary keep ${k.device}'.` : `Process ${k.pid}, connections replaced: ${k.reconnects}.`;
  const failure = k.error ? ` Last failure, ${span(k.failed_s ?? 0)} ago: ${brief(k.error)}` : "";
  return { key: k.device, title: k.device, state: bad ? `missing for ${span(k.report_age_s)}` : "kept", why: how + failure, bad };
}

/** @param {import("./model.js").Following} f @returns {Part} */
function followingPart(f) {
  const silent = f.report_age_s >= 90;
  const state = silent ? `no report for ${span(f.report_age_s)}` : f.behind_s ? `behind for ${span(f.behind_s)}` : "up to date";
  const of = f.image ? ` of ${f.image}` : "";
  const reason = silent ? `, ${f.image ? "the server's thread hangs: see its log" : "the follower has ended: mount once more"}` : f.reason ? `. Stays as it is: ${brief(f.reason)}` : "";
  return { key: f.name, title: f.name, state, bad: silent || !!f.reason, why: `Versions: ${f.versions}${of}, changes: ${f.switches}${reason}` };
}

/** @param {import("./model.js").SlowRead} r @returns {Part} */
function slowPart(r) {
  const when = `${span(Math.round(r.ago_ms / 1000))} ago`;
  return { key: `${r.export} ${r.offset} ${r.took_us}`, title: r.what || `a file at ${text(bytes(r.offset))}`, bad: r.failed,
    state: `${r.failed ? "failed after " : ""}${text(duration(r.took_us))}, ${when}`, why: slowWords(r) };
}

/** @param {Part} a @param {Part} b */
const worstFirst = (a, b) => Number(b.bad) - Number(a.bad) || a.key.localeCompare(b.key);

/** @param {string} id @param {Part[]} parts */
function showSection(id, parts) {
  showParts(id, parts);
  byId(`${id}-s`).hidden = !parts.length;
}

/** @param {Status} s */
function showAllParts(s) {
  const waiting = s.waiting_exports.map((e) => ({ key: `waits ${e.name}`, title: e.name, state: "waits for its keys", bad: true,
    why: "Give them again: granary mount --keys." }));
  showParts("stores", [...waiting, ...s.stores.map(storePart).sort((a, b) => Number(b.bad) - Number(a.bad))]);
  showParts("disks", cacheParts(s));
  showSection("proxies", proxyParts(s));
  showSection("keepers", s.keepers.map(keeperPart).sort(worstFirst));
  showSection("following", s.following.map(followingPart).sort(worstFirst));
  showSection("slow", s.slow_reads.map(slowPart));
}

/* ---- asking ---- */

/** @param {Status} s */
function showAll(s) {
  showHead(s);
  showFigures(s);
  latest = s;
  showWay(s);
  showImages(s);
  showAllParts(s);
}

/** @returns {Promise<number>} after how many milliseconds to ask again */
async function ask() {
  const answer = await fetch("api/status", { cache: "no-store", signal: within(10000),
    headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.status === 401) {
    token = await askToken("This console needs its token",
      "It is the line in the file that the server was started with (--console-token).", asked || token !== "", false);
    asked = true;
    return 0;
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  const status = /** @type {Status} */ (await answer.json());
  asked = false;
  answered = performance.now();
  showAll(status);
  return EVERY_MS;
}

async function askForEver() {
  for (;;) {
    await seen();
    const began = performance.now();
    let pause = SLOWER_MS;
    try {
      pause = await ask();
    } catch (error) {
      showAway(error instanceof Error ? error.message : String(error));
      if (performance.now() - answered < LATE_MS) pause = EVERY_MS;
    }
    await new Promise((wake) => setTimeout(wake, Math.max(0, pause - (performance.now() - began))));
  }
}

byId("filter").addEventListener("input", () => { if (latest) showImages(latest); });
byId("unlock").addEventListener("click", () => void openActions());
void askForEver();
