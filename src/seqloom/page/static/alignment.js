// Which source token each target token comes from, by the head that aligns best or by any other.
import { h } from "seqloom/dom";
import { groupMap, groupsOf, readMap } from "seqloom/maps";
import { matrix } from "seqloom/matrix";
import { nameOf } from "seqloom/names";
import { percent, weight } from "seqloom/numbers";
import { shown } from "seqloom/predictions";
import { sideOf } from "seqloom/tokens";
import { hideTip, showTip } from "seqloom/tooltip";

const LISTED = 8; // heads, until all are asked for

/** The section of a view: {content, figures}. The key `search.site` of the address names the head. */
export async function alignmentOf(view, alive) {
  const found = await view.source.get(`/trace/${view.trace.id}/alignment`);
  if (!alive()) return null;
  const site = found.heads.some((head) => head.site === view.state["search.site"]) ? view.state["search.site"] : found.best.site;
  const stack = view.trace.stacks.find((one) => one.layers.some((layer) => layer.sites.includes(site)));
  const whole = await readMap(view, stack, site, false, alive);
  if (!whole) return null;
  const columns = groupsOf(sideOf(view.trace, "source"), { special: view.state.special !== "0" });
  // A decoder that reads a token is about to write the next one: that is what its look at the source is for.
  const rows = view.trace.predictions.filter((one) => one.at?.[0] === "target").map((one) => ({ label: shown(one.label).replace(/^␣/, ""), indices: [one.at[1]], special: false }));
  const map = groupMap(whole, rows, columns);
  const drawn = matrix(map, {
    rows, columns, peak: 1, space: Math.min(620, Math.max(280, 0.5 * view.clientWidth)), describe: `Weights of the target on the source, ${site}`,
    onpoint: (r, c, event) => (r === null ? hideTip() : showTip(event.clientX, event.clientY, h("strong", {}, weight(map.data[r * map.columns + c])), h("div", { dir: "auto" }, `${rows[r].label} ← ${columns[c].label}`))),
    onpick: (r, c) => { drawn.choose(r, c); view.app.go({ row: rows[r].indices[0], column: columns[c].indices[0] }, { replace: true }); },
  });
  const content = [h("h2", {}, "Alignment"), h("p", { class: "method" }, "Which source token is attended to when each target token is written. A head's share is how much of its weight lies, on average, on the source token without which that target token would lose most."),
    h("div", { class: "beside" }, h("div", { class: "scroll" }, drawn.element), heads(view, found, stack, site))];
  return { content, figures: [drawn.figure(`alignment ${site}`)] };
}

/** The heads by how well they align; a click draws one. */
function heads(view, found, stack, site) {
  const sorted = [...found.heads].sort((one, other) => other.share - one.share);
  const all = view.state["search.heads"] === "all";
  const few = all ? sorted : sorted.slice(0, LISTED);
  const row = (head) => h("tr", { data: { site: head.site }, class: head.site === site ? "chosen" : null },
    h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", "aria-pressed": String(head.site === site), onclick: () => view.set({ "search.site": head.site === found.best.site ? null : head.site }, { replace: true }) }, nameOf(stack, head.site))),
    h("td", { class: "number", data: { number: "share" } }, percent(head.share)), h("td", { class: "share", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * head.share).toFixed(1)}%` } })));
  return h("div", {}, h("table", { class: "aligning" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "head"), h("th", { scope: "col", class: "number" }, "share"), h("td", {}))), h("tbody", {}, few.map(row))),
    few.length < sorted.length ? h("button", { type: "button", class: "quiet", onclick: () => view.set({ "search.heads": "all" }, { replace: true }) }, `all ${sorted.length} heads`) : null);
}
