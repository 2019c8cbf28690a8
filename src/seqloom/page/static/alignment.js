// Which source token each target token comes from, by the head that aligns best or by any other.
import { h, s } from "seqloom/dom";
import { percent, weight } from "seqloom/numbers";
import { shade } from "seqloom/palette";
import { label, sideOf } from "seqloom/tokens";
import { tip } from "seqloom/tooltip";

const CELL = 22;
const MOST = 64; // rows and columns that are drawn with their tokens
const LISTED = 8; // heads, until all are asked for

/** The section of a view: {content, figures}. The key `search.site` of the address names the head. */
export async function alignmentOf(view, alive) {
  const found = await view.source.get(`/trace/${view.trace.id}/alignment`);
  if (!alive()) return null;
  const site = found.heads.some((head) => head.site === view.state["search.site"]) ? view.state["search.site"] : found.best.site;
  const { weights } = await view.source.tensors(`/trace/${view.trace.id}/mixing`, { site });
  const [source, target] = [sideOf(view.trace, "source"), sideOf(view.trace, "target")];
  const drawing = matrix(weights, target, source);
  const content = [h("h2", {}, "Alignment"),
    h("p", { class: "method" }, found.about ?? "Which source token each target token attends to. A head's share says how much of its weight, on average, lies on the source token that it attends to most of all the heads' votes."),
    h("div", { class: "beside" }, h("div", {}, drawing ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Alignment of target and source" }, drawing)
      : h("p", { class: "method" }, `More than ${MOST} tokens: `, h("button", { type: "button", onclick: () => view.app.go({ view: "mixing", site }) }, "see it in Mixing"))), heads(view, found, site))];
  const rows = target.tokens.map((token, t) => [token.text, ...Array.from(weights.data.slice(t * weights.shape[1], (t + 1) * weights.shape[1]))]);
  return { content, figures: [{ name: `alignment ${site}`, svg: drawing, table: { columns: ["target", ...source.tokens.map((token) => token.text)], rows } }] };
}

/** The heads by how well they align; a click draws one. */
function heads(view, found, site) {
  const sorted = [...found.heads].sort((one, other) => other.share - one.share);
  const all = view.state["search.heads"] === "all";
  const few = all ? sorted : sorted.slice(0, LISTED);
  const row = (head) => h("tr", { data: { site: head.site }, class: head.site === site ? "chosen" : null },
    h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", "aria-pressed": String(head.site === site), onclick: () => view.set({ "search.site": head.site === found.best.site ? null : head.site }, { replace: true }) }, head.site)),
    h("td", { class: "number", data: { number: "share" } }, percent(head.share)), h("td", { class: "share", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * head.share).toFixed(1)}%` } })));
  return h("div", {}, h("table", { class: "aligning" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "head"), h("th", { scope: "col", class: "number" }, "share"), h("td", {}))), h("tbody", {}, few.map(row))),
    few.length < sorted.length ? h("button", { type: "button", class: "quiet", onclick: () => view.set({ "search.heads": "all" }, { replace: true }) }, `all ${sorted.length} heads`) : null);
}

/** Target tokens as rows, source tokens as columns; the darker, the more weight. */
function matrix({ shape: [rows, columns], data }, target, source) {
  if (rows > MOST || columns > MOST) return null;
  const side = 7.2 * Math.min(16, Math.max(...target.tokens.map((token) => label(token).length))) + 14;
  const top = 6.4 * Math.min(16, Math.max(...source.tokens.map((token) => label(token).length))) + 14;
  const [width, height] = [side + columns * CELL + 40, top + rows * CELL + 4];
  const short = (token) => { const letters = [...label(token)]; return letters.length > 16 ? `${letters.slice(0, 15).join("")}…` : letters.join(""); };
  const cells = [];
  for (let t = 0; t < rows; t++) {
    for (let k = 0; k < columns; k++) {
      const value = data[t * columns + k];
      const cell = s("rect", { class: "cell", x: side + k * CELL, y: top + t * CELL, width: CELL - 1, height: CELL - 1, rx: 2, fill: shade(value), "data-row": t, "data-column": k });
      cells.push(tip(cell, () => [h("strong", { dir: "auto" }, `${label(target.tokens[t])} ← ${label(source.tokens[k])}`), h("div", {}, weight(value))]));
    }
  }
  return s("svg", { class: "alignment", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Weights of ${rows} target tokens on ${columns} source tokens` },
    source.tokens.map((token, k) => s("text", { transform: `translate(${side + (k + 0.62) * CELL},${top - 6}) rotate(-50)` }, short(token))),
    target.tokens.map((token, t) => s("text", { x: side - 8, y: top + (t + 0.5) * CELL, "text-anchor": "end", "dominant-baseline": "central" }, short(token))), cells);
}
