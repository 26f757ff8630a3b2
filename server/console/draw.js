// @ts-check
// Elements and pictures. Text of the server goes into text nodes and attributes only, never into markup. A row is made
// once and changed afterwards: what did not change is not touched.

import { runs } from "./model.js";

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * @param {string} tag @param {string} [name] its class @param {(Node | string)[]} children
 * @returns {HTMLElement}
 */
export function element(tag, name = "", ...children) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  e.append(...children);
  return e;
}

/** @param {string} tag @param {Record<string, string>} attributes @returns {SVGElement} */
export function svg(tag, attributes) {
  const e = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

/** @param {Element} e @param {string} text */
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** @param {Element} e @param {import("./model.js").Figure} figure a number with its unit, smaller */
export function setFigure(e, figure) {
  const whole = figure.unit ? `${figure.value} ${figure.unit}` : figure.value;
  if (e.getAttribute("data-is") === whole) return;
  e.setAttribute("data-is", whole);
  e.replaceChildren(figure.value, ...(figure.unit ? [element("small", "", ` ${figure.unit}`)] : []));
}

/** @param {Element} e @param {string} name @param {string} value */
export function setAttribute(e, name, value) {
  if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

/**
 * Make the children of a list those of the items, by key, in their order. A child is made once.
 * @template T
 * @param {Element} list @param {T[]} items @param {(item: T) => string} keyOf
 * @param {(item: T) => HTMLElement} make @param {(row: HTMLElement, item: T) => void} update
 */
export function sync(list, items, keyOf, make, update) {
  const known = new Map([...list.children].map((row) => [/** @type {HTMLElement} */ (row).dataset.key, row]));
  /** @type {Map<string, T>} */
  const wanted = new Map();
  for (const item of items) {
    let key = keyOf(item);
    while (wanted.has(key)) key += "\n"; // another one of that key
    wanted.set(key, item);
  }
  for (const [key, row] of known) if (!wanted.has(key ?? "")) row.remove();
  const focus = /** @type {HTMLElement | null} */ (document.activeElement);
  let at = list.firstElementChild;
  for (const [key, item] of wanted) {
    let row = /** @type {HTMLElement | undefined} */ (known.get(key));
    if (!row) {
      row = make(item);
      row.dataset.key = key;
    }
    if (row === at) at = at.nextElementSibling;
    else list.insertBefore(row, at);
    update(row, item);
  }
  if (focus?.isConnected && focus !== document.activeElement && list.contains(focus)) focus.focus(); // its row moved
}

/** @param {string} name @param {ParentNode} row @returns {Element} */
export function part(name, row) {
  const found = row.querySelector(`.${name}`);
  if (!found) throw new Error(`no part ${name}`);
  return found;
}

/**
 * Make the paths of a picture those of the list. Paths that stay are changed, so that the style may move them.
 * @param {Element} picture @param {[string, string][]} paths class and form of each
 */
function drawPaths(picture, paths) {
  while (picture.children.length > paths.length) picture.lastElementChild?.remove();
  paths.forEach(([name, d], i) => {
    const path = picture.children[i];
    if (!path) picture.append(svg("path", { class: name, d }));
    else if (path.getAttribute("class") === name) setAttribute(path, "d", d);
    else path.replaceWith(svg("path", { class: name, d }));
  });
}

/** @param {SVGElement} picture @param {string} strip one path for each kind of cell */
export function drawStrip(picture, strip) {
  if (picture.dataset.strip === strip) return;
  picture.dataset.strip = strip;
  picture.setAttribute("viewBox", `0 0 ${Math.max(strip.length, 1)} 1`);
  /** @type {Map<string, string>} */
  const paths = new Map();
  for (const run of runs(strip))
    if (run.kind) paths.set(run.kind, `${paths.get(run.kind) ?? ""}M${run.from} 0H${run.to}V1H${run.from}Z`);
  drawPaths(picture, [...paths]);
}

/**
 * What each hop served lately, one layer above the other.
 * @param {Element} picture @param {string[]} hops @param {number[][]} times the oldest first; of each, a number for each hop
 * @param {number} most how many there may be
 */
export function drawSpark(picture, hops, times, most) {
  const width = 240, height = 48, sums = times.map((row) => row.reduce((n, v) => n + v, 0)), top = Math.max(...sums, 1);
  const x = (/** @type {number} */ i) => (width - ((times.length - 1 - i) * width) / (most - 1)).toFixed(1);
  const y = (/** @type {number} */ v) => (height - (v / top) * height).toFixed(1);
  let below = times.map(() => 0);
  drawPaths(picture, hops.map((hop, h) => {
    const above = below.map((v, i) => v + times[i][h]);
    const edge = (/** @type {number[]} */ values) => values.map((v, i) => `${x(i)} ${y(v)}`);
    const d = `M${[...edge(above), ...edge(below).reverse()].join("L")}Z`;
    below = above;
    return [`h-${hop}`, d];
  }));
}

/**
 * The way of a read: a stream from the left, of which each hop takes what it has. The height is the share of the bytes.
 * @param {Element} picture @param {{hop: string, served: number}[]} hops the first is that of all reads, and serves none
 */
export function drawFlow(picture, hops) {
  const width = 1000, height = 128, most = 88, column = width / hops.length;
  const takers = hops.slice(1);
  const sum = takers.reduce((n, h) => n + h.served, 0);
  const thick = (/** @type {number} */ n) => (sum ? (n / sum) * most : 0);
  const stream = (/** @type {number} */ i, /** @type {number} */ n) => /** @type {[string, string]} */ (
    ["h-reads", `M${column * i} 4H${column * (i + 1)}V${4 + Math.max(thick(n), 1.5)}H${column * i}Z`]);
  const paths = [stream(0, sum)];
  let left = sum;
  takers.forEach((hop, i) => {
    const own = thick(hop.served), y = 4 + thick(left) - own;
    left = Math.max(0, left - hop.served);
    paths.push([`h-${hop.hop}`, branch(column * (i + 1), y, own, column, height)]);
    if (i < takers.length - 1) paths.push(stream(i + 1, left));
  });
  drawPaths(picture, paths);
}

/**
 * A band that leaves the stream at (x, y), bends down, and ends at the bottom of its column.
 * @param {number} x @param {number} y @param {number} own its height @param {number} column @param {number} height
 */
function branch(x, y, own, column, height) {
  const w = own && Math.max(own * 0.75, 2), r = column * 0.06, at = x + r / 2;
  return `M${x} ${y}H${at}A${r + w} ${r + own} 0 0 1 ${at + r + w} ${y + r + own}V${height}` +
    `H${at + r}V${y + own + r}A${r} ${r} 0 0 0 ${at} ${y + own}H${x}Z`;
}
