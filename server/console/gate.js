// @ts-check
// What is waited for: dialogs, a token, somebody who sees the page; and what screen readers say.

import { byId, setText } from "./draw.js";

/** @param {string} words said to those who do not see the page */
export function say(words) {
  setText(byId("said"), words);
}

/**
 * Show a dialog and wait until it is closed.
 * @param {string} id @returns {Promise<string>} the value of the button
 */
export function show(id) {
  const dialog = /** @type {HTMLDialogElement} */ (byId(id));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue), { once: true }));
}

/** @type {Promise<string>} the last question: there is one dialog for all */
let asking = Promise.resolve("");

/**
 * Ask for a token. With `cancel`, a user may go back.
 * @param {string} title @param {string} why @param {boolean} wrong the last one was wrong @param {boolean} cancel
 * @returns {Promise<string>} "": none
 */
export function askToken(title, why, wrong, cancel) {
  asking = asking.then(() => askNow(title, why, wrong, cancel));
  return asking;
}

/** @param {string} title @param {string} why @param {boolean} wrong @param {boolean} cancel @returns {Promise<string>} */
async function askNow(title, why, wrong, cancel) {
  const input = /** @type {HTMLInputElement} */ (byId("gate-token"));
  const back = /** @type {HTMLButtonElement} */ (byId("gate-cancel"));
  const dialog = /** @type {HTMLDialogElement} */ (byId("gate"));
  setText(byId("gate-h"), title);
  setText(byId("gate-why"), why);
  byId("gate-wrong").hidden = !wrong;
  back.hidden = !cancel;
  back.onclick = () => dialog.close();
  const opened = (await show("gate")) === "open", given = input.value.trim();
  input.value = "";
  return opened ? given.replace(/[^!-~]/g, "?") : ""; // no header has other characters
}

/** @returns {Promise<void>} when somebody sees the page */
export function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => document.addEventListener("visibilitychange", () => done(), { once: true }));
}
