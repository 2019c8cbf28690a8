// A search as a tree: a column for each step, a box for each candidate, a line from each to what it continues.
import { s } from "seqloom/dom";
import { number } from "seqloom/numbers";
import { label } from "seqloom/tokens";

const WIDE = 104;
const BOX = 84;
const HIGH = 40;
const TALL = 32;
const TOP = 24;
const GAP = 14; // between what was followed and what was dropped
const FOLLOWED = new Set(["kept", "finished", "replaced"]);

/** The candidates by id, the step of each, and whether it was followed. */
export function indexOf(record) {
  const candidates = new Map();
  record.steps.forEach((step, at) => step.candidates.forEach((one) => candidates.set(one.id, { ...one, step: at, followed: FOLLOWED.has(one.status) })));
  return candidates;
}

/** The ids from the first step to a candidate. */
export function pathTo(candidates, id) {
  const path = [];
  for (let at = candidates.get(id); at; at = candidates.get(at.parent)) path.unshift(at.id);
  return path;
}

/** Where the boxes of some steps stand: those that were followed first, by score, then the others. */
function place(steps, dropped) {
  const places = new Map();
  let height = 0;
  const followed = steps.map((step) => step.candidates.filter((one) => FOLLOWED.has(one.status)).sort((one, other) => other.score - one.score));
  const floor = TOP + HIGH * Math.max(1, ...followed.map((ones) => ones.length)) + GAP;
  steps.forEach((step, column) => {
    const x = column * WIDE + 4;
    followed[column].forEach((one, row) => places.set(one.id, { x, y: TOP + row * HIGH }));
    const others = dropped ? step.candidates.filter((one) => !FOLLOWED.has(one.status)).sort((one, other) => other.score - one.score) : [];
    others.forEach((one, row) => places.set(one.id, { x, y: floor + row * HIGH }));
    height = Math.max(height, dropped && others.length ? floor + others.length * HIGH : floor);
  });
  return { places, height: height + 4, floor };
}

/**
 * The drawing of the steps `from` … `to` of a record. `best` are the ids of the path to mark, `dropped` says whether what
 * was dropped is drawn, `pick(step)` is called on a click, `tell(element, candidate)` gives each box its tooltip.
 */
export function beamTree(record, candidates, { from, to, best, dropped, chosen, pick, tell }) {
  const steps = record.steps.slice(from, to);
  const { places, height, floor } = place(steps, dropped);
  const marked = new Set(best);
  const width = steps.length * WIDE + 8;
  const edges = [];
  const boxes = [];
  for (const [id, { x, y }] of places) {
    const one = candidates.get(id);
    const start = places.get(one.parent);
    const kind = marked.has(id) ? "best" : one.status;
    if (start) {
      const [x1, y1, x2, y2] = [start.x + BOX, start.y + TALL / 2, x, y + TALL / 2];
      edges.push(s("path", { class: `edge ${kind}`, d: `M${x1},${y1} C${x1 + 14},${y1} ${x2 - 14},${y2} ${x2},${y2}` }));
    }
    const box = s("g", { class: `candidate-box ${kind}${one.status === "finished" ? " end" : ""}`, transform: `translate(${x},${y})`, "data-candidate": id, "data-status": one.status, tabindex: -1, role: "img",
      "aria-label": `${label(one)}, ${one.status}, score ${number(one.score)}${one.reason ? `: ${one.reason}` : ""}`, onclick: () => pick(one.step) },
    s("rect", { width: BOX, height: TALL, rx: 5 }),
    s("text", { class: "piece", x: BOX / 2, y: 13, "text-anchor": "middle" }, cut(label(one))),
    s("text", { class: "score", x: BOX / 2, y: 26, "text-anchor": "middle" }, number(one.score)));
    boxes.push(tell(box, one));
  }
  edges.sort((one, other) => one.classList.contains("best") - other.classList.contains("best"));
  const heads = steps.map((step, column) => s("text", { class: from + column === chosen ? "step chosen" : "step", x: column * WIDE + 4 + BOX / 2, y: 13, "text-anchor": "middle" }, `step ${from + column + 1}`));
  const tree = s("svg", { class: "beam", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Steps ${from + 1} to ${to} of the search` },
    chosen >= from && chosen < to ? s("rect", { class: "column", x: (chosen - from) * WIDE, y: 0, width: BOX + 8, height, rx: 6 }) : null,
    heads, dropped ? s("line", { class: "floor", x1: 0, x2: width, y1: floor - GAP / 2, y2: floor - GAP / 2 }) : null, edges, boxes);
  walkBoxes(tree, steps, places, candidates);
  return tree;
}

/** Arrow keys: up and down within a step, left to the parent, right to the best continuation. */
function walkBoxes(tree, steps, places, candidates) {
  const element = (id) => tree.querySelector(`[data-candidate="${id}"]`);
  const first = steps[0]?.candidates.find((one) => places.has(one.id));
  if (first) element(first.id)?.setAttribute("tabindex", "0");
  tree.addEventListener("keydown", (event) => {
    const id = Number(event.target.dataset?.candidate ?? NaN);
    if (!places.has(id)) return;
    const one = candidates.get(id);
    const { x } = places.get(id);
    const column = [...places].filter(([, other]) => other.x === x).sort(([, a], [, b]) => a.y - b.y).map(([key]) => key);
    const at = column.indexOf(id);
    const children = [...places.keys()].filter((key) => candidates.get(key).parent === id).sort((a, b) => places.get(a).y - places.get(b).y);
    const next = { ArrowDown: column[at + 1], ArrowUp: column[at - 1], ArrowLeft: one.parent, ArrowRight: children[0] }[event.key];
    if (event.key === "Enter") event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    if (next === undefined || !places.has(next)) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", "-1");
    element(next).setAttribute("tabindex", "0");
    element(next).focus();
  });
}

function cut(text) {
  const letters = [...text];
  return letters.length <= 11 ? text : `${letters.slice(0, 10).join("")}…`;
}
