// The arithmetic of one weight: steps with the model's own numbers, as one would write them on a board.
import { h } from "seqloom/dom";
import { number } from "seqloom/numbers";
import { ink, signedShade } from "seqloom/palette";
import { label } from "seqloom/tokens";

const SHOWN = 8; // coordinates of a vector that are written out at first
const LISTED = 24; // and entries of a list with labels

/** Elements for {steps: [{name, formula, labels, values, note}]}; `column` is the entry that is marked in lists. */
export function arithmetic({ steps, column }, { everything = false } = {}) {
  return h("ol", { class: "arithmetic" }, steps.map((step) =>
    h("li", { data: { step: step.name } },
      h("div", { class: "what" }, h("strong", {}, step.name), h("code", {}, step.formula), step.note ? h("p", {}, step.note) : null),
      h("div", { class: "values" }, show(step, column, everything)))));
}

function show({ values, labels }, column, everything) {
  if (!Array.isArray(values)) return h("output", {}, number(values));
  if (Array.isArray(values[0])) return values.map((row, index) => h("div", { class: "named" }, labels ? h("span", { class: "label", dir: "auto" }, labels[index]) : null, strip(row, everything)));
  return labels ? list(values, labels, column, everything) : strip(values, everything);
}

/** A vector: one coloured cell for each coordinate, with its number. */
function strip(values, everything) {
  const peak = Math.max(...values.map(Math.abs), 1e-12);
  const shown = everything ? values : values.slice(0, SHOWN);
  const left = values.length - shown.length;
  return h("div", { class: "strip" },
    shown.map((value) => h("span", { style: { background: signedShade(value / peak), color: ink(value / peak, true) } }, number(value))),
    left ? h("em", {}, `… ${left} more`) : null);
}

/** One number for each token: the marked one and the largest, in the order of the text. */
function list(values, labels, column, everything) {
  const seen = values.map((_, index) => index).filter((index) => values[index] !== null);
  const order = [...seen].sort((a, b) => values[b] - values[a]);
  const kept = new Set(everything ? order : [...order.slice(0, LISTED), column]);
  const peak = Math.max(...seen.map((index) => Math.abs(values[index])), 1e-12);
  const [left, hidden] = [seen.length - kept.size, values.length - seen.length];
  return h("div", { class: "row" },
    values.map((value, index) => kept.has(index) ? h("span", { class: index === column ? "cell chosen" : "cell", style: { background: signedShade((value ?? 0) / peak), color: ink((value ?? 0) / peak, true) } },
      h("b", { dir: "auto" }, label({ text: labels[index] })), value === null ? "−∞" : number(value)) : null),
    left > 0 ? h("em", {}, `… ${left} smaller ones`) : null, hidden > 0 ? h("em", {}, `${hidden} may not be seen: −∞`) : null);
}
