// @ts-check
// What an administrator may do: the requests of the control socket, whose answers come line by line. The token stays in
// this page's memory, and is gone with it.

import { byId, element, part, setText, sync } from "./draw.js";
import { askToken, say, show } from "./gate.js";
import { bytes, span, text } from "./model.js";

/**
 * @typedef {{label: string, note: string, path: string, sure?: string}} Choice
 * @typedef {{id: number, title: string, state: string, outcome: string, done: number, had: number, total: number, since: number,
 *   stop: AbortController | null, bad: boolean}} Job
 * @typedef {{bytes_done?: number, bytes_total?: number}} Progress
 */

const CHOICES = /** @type {Choice[]} */ ([
  { label: "Warm", note: "Fetch all of it into the cache now.", path: "warm?what=all&export=" },
  { label: "Warm the metadata", note: "Only what lists and opens of files need.", path: "warm?what=metadata&export=" },
  { label: "Pin", note: "Keep what is cached of it until it is unpinned.", path: "cache/pin?export=" },
  { label: "Unpin", note: "Let the cache evict it again.", path: "cache/unpin?export=" },
  { label: "Evict", note: "Drop what is cached of it, unless pinned.", path: "cache/evict?export=",
    sure: "Its readers fetch it from the store again." },
]);

const DRAIN = /** @type {Choice} */ ({
  label: "Drain", note: "Before the server is stopped: cache nothing new, and write what has come.", path: "quiesce",
  sure: "The server goes on serving, but caches nothing new until it is started again.",
});

let token = "";
let last = 0;
/** @type {Job[]} */
let jobs = [];

/** @param {Choice} choice @param {string} of @returns {Promise<boolean>} */
async function isSure(choice, of) {
  if (!choice.sure) return true;
  setText(byId("sure-h"), of ? `${choice.label} ${of}?` : `${choice.label}?`);
  setText(byId("sure-note"), choice.sure);
  setText(byId("sure-yes"), choice.label);
  return (await show("sure")) === "yes";
}

/**
 * Open the dialog with what can be done to an image, or to the server.
 * @param {string} [name] of an export
 */
export async function openActions(name) {
  const choices = name === undefined ? [DRAIN] : CHOICES;
  setText(byId("act-h"), name ?? "This server");
  setText(byId("act-note"), name === undefined ? "Actions on an image are at the end of its row." : "");
  byId("act-choices").replaceChildren(...choices.map((choice) => {
    const button = element("button", "", choice.label, element("small", "", choice.note));
    button.setAttribute("type", "button");
    button.addEventListener("click", () => void begin(choice, name));
    return button;
  }));
  await show("act");
}

/** @param {Choice} choice @param {string | undefined} name */
async function begin(choice, name) {
  /** @type {HTMLDialogElement} */ (byId("act")).close();
  if (!(await isSure(choice, name ?? ""))) return;
  if (!token && !(await giveToken(false))) return;
  const job = /** @type {Job} */ ({ id: ++last, title: name === undefined ? choice.label : `${choice.label} ${name}`,
    state: "asked", outcome: "", done: 0, had: 0, total: 0, since: Date.now(), stop: new AbortController(), bad: false });
  jobs = [job, ...jobs].filter((other, i) => i < 8 || other.stop);
  drawJobs();
  const path = choice.path + (name === undefined ? "" : encodeURIComponent(name));
  await run(job, path);
  if (job.state === "token") {
    jobs = jobs.filter((other) => other !== job);
    drawJobs();
    if (await giveToken(true)) await begin({ ...choice, sure: undefined }, name);
  }
}

/** @param {boolean} wrong @returns {Promise<boolean>} */
async function giveToken(wrong) {
  token = await askToken("Actions need the administrators' token",
    "It is the line in the file that the server was started with (--console-admin-token).", wrong, true);
  return token !== "";
}

/** @param {Job} job @param {string} state @param {boolean} bad */
function end(job, state, bad) {
  job.state = state;
  job.bad = bad;
  job.stop = null;
  drawJobs();
  if (state !== "token") say(`${job.title}: ${state}`);
}

/** @param {Job} job @param {string} path */
async function run(job, path) {
  try {
    const answer = await fetch(`api/${path}`, { method: "POST", cache: "no-store", signal: job.stop?.signal,
      headers: { Authorization: `Bearer ${token}`, "Granary-Console": "1" } });
    if (answer.status === 401) { token = ""; end(job, "token", false); return; }
    if (answer.status === 202) { await drainOn(job, path, answer); return; }
    if (answer.headers.get("Content-Type")?.startsWith("text/")) end(job, (await answer.text()).trim(), true);
    else await follow(job, answer);
  } catch (error) {
    end(job, job.stop?.signal.aborted ? "stopped" : `the server did not answer: ${String(error)}`, !job.stop?.signal.aborted);
  }
}

/**
 * What has come is being written: ask again.
 * @param {Job} job @param {string} path @param {Response} answer
 */
async function drainOn(job, path, answer) {
  const left = /** @type {{unwritten_bytes: number}} */ (await answer.json());
  job.state = `${text(bytes(left.unwritten_bytes))} to write`;
  drawJobs();
  await new Promise((wake) => setTimeout(wake, 1000));
  if (job.stop?.signal.aborted) end(job, "stopped asking; the server drains on", false);
  else await run(job, path);
}

/** @param {Job} job @param {Response} answer lines of JSON */
async function follow(job, answer) {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) break;
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop() ?? "";
    lines.filter(Boolean).forEach((line) => take(job, JSON.parse(line)));
  }
  if (rest) take(job, JSON.parse(rest));
  if (job.stop) end(job, "ended without a result", true);
}

/** @param {Job} job @param {Record<string, any>} line one member, whose name says what it is */
function take(job, line) {
  const sums = line.image ?? line.cache ?? line.warm;
  if (line.progress) {
    const p = /** @type {Progress} */ (line.progress);
    job.done = p.bytes_done ?? 0;
    if (job.total !== (p.bytes_total ?? 0)) Object.assign(job, { total: p.bytes_total ?? 0, had: job.done, since: Date.now() });
    job.state = timeLeft(job);
    drawJobs();
  } else if (line.error) end(job, String(line.error), true);
  else if (sums?.error) end(job, String(sums.error), true);
  else if (sums) job.outcome = outcome(sums);
  else if (line.result) end(job, job.outcome || "done", false);
  else if (typeof line.unwritten_bytes === "number") end(job, "nothing is left to write: the server can be stopped", false);
}

/** @param {Record<string, number>} sums @returns {string} */
function outcome(sums) {
  if (sums.warmed_bytes !== undefined) return `done: ${text(bytes(sums.warmed_bytes))} fetched, ${text(bytes(sums.cached_bytes))} cached`;
  const refused = sums.refused_chunks ? `, ${sums.refused_chunks} chunks refused` : "";
  return `done: ${text(bytes(sums.changed_bytes ?? 0))}${refused}`;
}

/** @param {Job} job @returns {string} */
function timeLeft(job) {
  const got = job.done - job.had, seconds = (Date.now() - job.since) / 1000;
  const left = got > 0 && seconds > 2 ? `, ${span(Math.ceil((seconds / got) * (job.total - job.done)))} left` : "";
  return `${text(bytes(job.done))} of ${text(bytes(job.total))}${left}`;
}

function drawJobs() {
  byId("jobs-s").hidden = !jobs.length;
  sync(byId("jobs"), jobs, (job) => String(job.id), makeJob, updateJob);
}

/** @param {Job} job @returns {HTMLElement} */
function makeJob(job) {
  const stop = element("button", "stop", "Stop");
  stop.setAttribute("type", "button");
  stop.setAttribute("aria-label", `Stop: ${job.title}`);
  stop.addEventListener("click", () => job.stop?.abort());
  const bar = element("progress", "meter");
  bar.setAttribute("aria-label", job.title);
  return element("li", "", element("div", "line", element("span", "title", job.title), stop), bar, element("p", "why note"));
}

/** @param {HTMLElement} row @param {Job} job */
function updateJob(row, job) {
  const bar = /** @type {HTMLProgressElement} */ (part("meter", row));
  bar.hidden = !job.stop;
  if (job.total) { bar.max = job.total; bar.value = job.done; }
  setText(part("why", row), job.state);
  row.classList.toggle("bad", job.bad);
  /** @type {HTMLElement} */ (part("stop", row)).hidden = !job.stop;
}
