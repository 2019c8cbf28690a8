// What a change did: the answer as a text with its differences marked, and every probability before and after.
import { h } from "seqloom/dom";
import { columnOf } from "seqloom/columns";
import { number } from "seqloom/numbers";
import { chance } from "seqloom/predictions";

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

/** An answer of any task as a text, whose words can be compared. */
function textOf(answer) {
  if (!answer) return "";
  if (answer.tags) return answer.words.map((word, index) => `\u2068${word}/${answer.tags[index]}\u2069`).join(" ");
  if (answer.value !== undefined) return number(answer.value);
  return answer.label ?? answer.text ?? `log P = ${number(answer.log_probability)}`;
}

/** The two answers below each other; words that only one of them has are marked. */
export function answerDifference(answers) {
  const [before, after] = answers.map(textOf);
  const [was, is] = compareWords(before, after);
  const line = (name, words, element) => [h("dt", {}, name), h("dd", { dir: "auto", data: { answer: name } }, words.map((word) => (word.kept ? word.text : [word.text.match(/^\s*/u)[0], h(element, {}, word.text.trim())])))];
  return h("dl", { class: "answers" }, line("before", was, "del"), before === after
    ? [h("dt", {}, "after"), h("dd", { dir: "auto", data: { answer: "after" } }, after), h("dt", {}), h("dd", { class: "same" }, "The answer is the same.")]
    : line("after", is, "ins"));
}

/**
 * Every prediction before and after, with a bar for each difference; `rows` are {index, label, before, after}. `after` is
 * null where the change took the place of a prediction away. A `quantity` is no probability, and is written as it is.
 */
export function predictionTable(rows, { chosen, pick, quantity = false }) {
  const difference = (row) => (row.after === null ? 0 : row.after - row.before);
  const most = Math.max(...rows.map((row) => Math.abs(difference(row))), 1e-9);
  const points = quantity ? 1 : 100;
  const write = columnOf(rows.map((row) => points * difference(row)));
  const value = (number_) => (number_ === null ? "–" : quantity ? number(number_) : chance(number_));
  const head = (name, unit) => h("th", { scope: "col", class: "number" }, name, unit ? h("small", {}, unit) : null);
  return h("table", { class: "probabilities" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "prediction"), head("before"), head("after"), head("difference", quantity ? "" : " in points"), h("td", { "aria-hidden": "true" }))),
    h("tbody", {}, rows.map((row) => h("tr", { data: { prediction: row.index }, class: row.index === chosen ? "chosen" : null },
      h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", title: "Why?", onclick: () => pick(row.index) }, h("span", { class: "piece", dir: "auto" }, row.label))),
      h("td", { class: "number", data: { number: "before" } }, value(row.before)), h("td", { class: "number", data: { number: "after" } }, value(row.after)),
      h("td", { class: "number", data: { number: "difference" } }, row.after === null ? "" : write(points * difference(row))),
      h("td", { class: "balancing", "aria-hidden": "true" }, h("i", { class: difference(row) < 0 ? "minus" : "plus", style: { width: `${((50 * Math.abs(difference(row))) / most).toFixed(1)}%` } }))))));
}
