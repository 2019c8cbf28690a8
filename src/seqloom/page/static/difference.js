// What a change did: the answer as a text with its differences marked, and every probability before and after.
import { h } from "seqloom/dom";
import { columnOf } from "seqloom/columns";
import { chance, shown } from "seqloom/predictions";

const MOST = 400; // words; beyond it, texts are compared as wholes

/** The words of two texts, each marked as kept or not: the longest common subsequence is kept. */
export function compareWords(before, after) {
  const [a, b] = [before, after].map((text) => text.match(/\s*\S+/gu) ?? []);
  if (a.length > MOST || b.length > MOST) return [before, after].map((text) => [{ text, kept: before === after }]);
  const bare = (word) => word.trim();
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i][j] = bare(a[i]) === bare(b[j]) ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const marked = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && bare(a[i]) === bare(b[j])) {
      marked[0].push({ text: a[i++], kept: true });
      marked[1].push({ text: b[j++], kept: true });
    } else if (j >= b.length || (i < a.length && best[i + 1][j] >= best[i][j + 1])) marked[0].push({ text: a[i++], kept: false });
    else marked[1].push({ text: b[j++], kept: false });
  }
  return marked;
}

/** The two answers below each other; words that only one of them has are marked. */
export function answerDifference([before, after]) {
  const [was, is] = compareWords(before, after);
  const line = (name, words, element) => [h("dt", {}, name), h("dd", { dir: "auto", data: { answer: name } }, words.map((word) => (word.kept ? word.text : [word.text.match(/^\s*/u)[0], h(element, {}, word.text.trim())])))];
  return h("dl", { class: "answers" }, line("before", was, "del"), before === after
    ? [h("dt", {}, "after"), h("dd", { dir: "auto", data: { answer: "after" } }, after, h("small", { class: "same" }, " the same"))]
    : line("after", is, "ins"));
}

/** The probabilities as a table with a bar for each difference; `rows` are {index, label, before, after}. */
export function probabilityTable(rows, { chosen, pick } = {}) {
  const difference = (row) => row.after - row.before;
  const most = Math.max(...rows.map((row) => Math.abs(difference(row))), 1e-9);
  const write = columnOf(rows.map((row) => 100 * difference(row)));
  return h("table", { class: "probabilities" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "prediction"), h("th", { scope: "col", class: "number" }, "before"), h("th", { scope: "col", class: "number" }, "after"),
      h("th", { scope: "col", class: "number" }, "difference"), h("td", { "aria-hidden": "true" }))),
    h("tbody", {}, rows.map((row) => {
      const share = Math.abs(difference(row)) / most;
      const name = h("span", { class: "piece", dir: "auto" }, shown(row.label));
      return h("tr", { data: { prediction: row.index }, class: row.index === chosen ? "chosen" : null },
        h("th", { scope: "row" }, pick ? h("button", { type: "button", class: "quiet", onclick: () => pick(row.index) }, name) : name),
        h("td", { class: "number", data: { number: "before" } }, chance(row.before)), h("td", { class: "number", data: { number: "after" } }, chance(row.after)),
        h("td", { class: "number", data: { number: "difference" } }, write(100 * difference(row))),
        h("td", { class: "balancing", "aria-hidden": "true" }, h("i", { class: difference(row) < 0 ? "minus" : "plus", style: { width: `${(50 * share).toFixed(1)}%` } })));
    })));
}
