// @ts-check
// What the server says, and how its figures are written. Nothing here touches the page.

/**
 * @typedef {{reads: number, read_bytes: number, memory_bytes: number, disk_bytes: number, l2_bytes: number,
 *   peer_bytes: number, store_bytes: number}} Rates
 * @typedef {{name: string, digest: string, clients: number, size: number, strip: string, cached_share: number | null,
 *   hit_ratio: number, rates?: Rates,
 *   warming?: {bytes_done: number, bytes_total: number, left_s: number | null}}} Export
 * @typedef {{hop: string, bytes: number, requests: number, bytes_s: number, requests_s: number, p50_us: number | null,
 *   p99_us: number | null}} Hop
 * @typedef {{url: string, export?: string, state: string, failing_s?: number, waiting?: number, error?: string,
 *   read_waits_s?: number}} Store
 * @typedef {{path: string, size: number, reading: string, writing: string, deleted: boolean}} Disk
 * @typedef {{url: string, state: string, requests: number, bytes: number, failures: number, wrong: number}} Proxy
 * @typedef {{list: string, proxies: number, failing_s?: number, error?: string}} ProxyList
 * @typedef {{device: string, state: string, pid: number, reconnects: number, report_age_s: number, failed_s?: number,
 *   error?: string}} Keeper
 * @typedef {{name: string, image?: string, versions: number, switches: number, behind_s: number, reason?: string,
 *   report_age_s: number}} Following
 * @typedef {{offset: number, len: number, ago_ms: number, took_us: number, index_us: number, disk_us: number,
 *   queued_us: number, store_us: number, export?: string, what: string, from: string, failed: boolean}} SlowRead
 * @typedef {{version: string, node: string, uptime_ms: number, fence: string, health: string, health_reason?: string,
 *   exports: Export[], exports_total: number, waiting_exports: {name: string}[], hops: Hop[], stores: Store[],
 *   cache_directories: Disk[], l2: Proxy[], l2_lists: ProxyList[], keepers: Keeper[], following: Following[],
 *   slow_reads: SlowRead[],
 *   counters: Record<string, number>, rates?: Rates, saved: {requests: number, bytes: number}, hit_ratio: number, acts: boolean}} Status
 * @typedef {{value: string, unit: string}} Figure
 */

/** The words for the hops of a read. */
export const HOP_NAMES = /** @type {Record<string, string>} */ ({
  reads: "Not in the page cache", memory: "Memory", disk: "SSD", proxies: "Nodes and proxies", store: "Store",
});

/** @param {number} n @returns {string} three digits that count */
function digits(n) {
  const whole = Math.abs(n);
  return n.toFixed(whole >= 100 || n === 0 ? 0 : whole >= 10 ? 1 : 2);
}

/** @param {number} n @param {readonly string[]} units @param {number} step @returns {Figure} */
function scaled(n, units, step) {
  let i = 0;
  while (Math.abs(n) >= step * 0.9995 && i < units.length - 1) { n /= step; i++; }
  return { value: i ? digits(n) : String(Math.round(n)), unit: units[i] };
}

/** @param {number} n @returns {Figure} bytes */
export const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);

/** @param {number} n @returns {Figure} a count */
export const count = (n) => scaled(n, ["", "k", "M", "G"], 1000);

/** @param {number} n @returns {Figure} bytes a second */
export function rate(n) {
  const b = bytes(n);
  return { value: b.value, unit: `${b.unit}/s` };
}

/** @param {Figure} f @returns {string} */
export const text = (f) => (f.unit ? `${f.value} ${f.unit}` : f.value);

/** @param {number | null} us @returns {Figure} a duration; -1: longer than is measured */
export function duration(us) {
  if (us === null) return { value: "–", unit: "" };
  if (us < 0) return { value: "> 60", unit: "s" };
  if (us < 1000) return { value: String(us), unit: "µs" };
  const value = (/** @type {number} */ n) => String(Number(digits(n)));
  return us < 1e6 ? { value: value(us / 1e3), unit: "ms" } : { value: value(us / 1e6), unit: "s" };
}

/** @param {number} s @returns {string} a long time, in its two largest units */
export function span(s) {
  const units = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);
  const at = units.findIndex(([, size]) => s >= size);
  if (at < 0) return "0 s";
  const [unit, size] = units[at];
  const next = units[at + 1];
  const rest = next ? Math.floor((s % size) / next[1]) : 0;
  return `${Math.floor(s / size)} ${unit}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

/** @param {string} sentence @returns {string} the same with short digests: they fill lines, and say nothing from afar */
export const brief = (sentence) => sentence.replace(/\b([0-9a-f]{12})[0-9a-f]{20,}\b/g, "$1…");

/** @param {number | null} share @returns {string} never 100 % or 0 % where that is not so */
export function percent(share) {
  if (share === null) return "–";
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${share < 1 ? Math.min(99, Math.round(share * 100)) : 100} %`;
}

/** @param {number} ms @returns {AbortSignal} ends a request after that time; the types of tsc 4.8 do not know it */
export const within = (ms) => /** @type {any} */ (AbortSignal).timeout(ms);

/** @param {Status} s @returns {Hop | undefined} the hop at which all reads come in */
export const readsOf = (s) => s.hops.find((h) => h.hop === "reads");

/** What of the last seconds' reads each hop served; its own rate has warming and readahead in it, too. */
const SERVED = /** @type {Record<string, (keyof Rates)[]>} */ ({
  memory: ["memory_bytes"], disk: ["disk_bytes"], proxies: ["l2_bytes", "peer_bytes"], store: ["store_bytes"],
});

/** @param {Status} s @param {string} hop @returns {number} bytes a second */
export const served = (s, hop) => (SERVED[hop] ?? []).reduce((n, part) => n + (s.rates ? s.rates[part] : 0), 0);

/** @param {Status} s @returns {number | null} the cache's share of them; null: nothing was read */
export function hitShare(s) {
  const hits = served(s, "memory") + served(s, "disk");
  const all = s.hops.reduce((n, h) => n + served(s, h.hop), 0);
  return all > 0 ? hits / all : null;
}

/** @param {SlowRead} r @returns {string} where the time of a slow read went, the longest first */
export function slowWords(r) {
  const parts = /** @type {[string, number][]} */ ([["store", r.store_us], ["queue", r.queued_us], ["disk", r.disk_us], ["index", r.index_us]])
    .filter(([, us]) => us * 20 >= r.took_us).sort((a, b) => b[1] - a[1])
    .map(([name, us]) => `${name} ${text(duration(us))}`);
  const where = [r.export ?? "an image that is gone", r.from && `waited for ${r.from}`].filter(Boolean).join(", ");
  return `${where}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}

/**
 * @typedef {{from: number, to: number, kind: string}} Run cells [from, to) that look the same
 */

/** @param {string} c a cell of a strip @returns {string} the class that draws it; "": as the ground */
export function cellKind(c) {
  if (c === "?") return "";
  if (c === "-") return "no";
  if (c >= "a" && c <= "j") return `m${third(c.charCodeAt(0) - 97)}`;
  if (c >= "A" && c <= "J") return "go";
  const level = c.charCodeAt(0) - 48;
  return level ? `s${third(level)}` : "s0";
}

/** @param {number} level 0 to 9 @returns {number} 1 to 3 */
const third = (level) => (level === 9 ? 3 : level >= 5 ? 2 : 1);

/** @param {string} strip @returns {Run[]} */
export function runs(strip) {
  /** @type {Run[]} */
  const out = [];
  for (let i = 0; i < strip.length; i++) {
    const kind = cellKind(strip[i]);
    const last = out[out.length - 1];
    if (last && last.kind === kind) last.to = i + 1;
    else out.push({ from: i, to: i + 1, kind });
  }
  return out;
}

/** @param {Export} e @returns {string} how far its warming is; "": nothing is being warmed */
export function warmWords(e) {
  if (!e.warming) return "";
  const left = e.warming.left_s === null ? "" : `, ${span(Math.ceil(e.warming.left_s))} left`;
  return `warming ${percent(e.warming.bytes_done / Math.max(e.warming.bytes_total, 1))}${left}`;
}

/** @param {Export} e @returns {string} a strip in words */
export function stripWords(e) {
  const cells = [...e.strip].filter((c) => c !== "-");
  const known = cells.filter((c) => c !== "?");
  if (!known.length) return "what is cached is not known yet";
  const share = (/** @type {RegExp} */ what) => percent(known.filter((c) => what.test(c)).length / known.length);
  const parts = [`${percent(e.cached_share)} cached`];
  if (known.some((c) => /[a-j]/.test(c))) parts.push(`${share(/[a-j]/)} in memory`);
  if (known.some((c) => /[A-J]/.test(c))) parts.push(`${share(/[A-J]/)} on its way`);
  if (known.length < cells.length) parts.push(`${percent(known.length / cells.length)} looked at`);
  return parts.join(", ");
}
