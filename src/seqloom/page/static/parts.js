// The parts of a network as a table of buttons: a row for each layer, its heads (directions, kernels) and its sublayers.
import { h, walk } from "seqloom/dom";
import { layerName } from "seqloom/names";
import { ink, shade } from "seqloom/palette";
import { tip } from "seqloom/tooltip";

/** What a part is called on its button, where its stack and layer are known: "head 5" for "encoder.2.head.5" and "decoder.2.cross.5". */
function shortName(site) {
  const parts = site.split(".");
  const last = parts.at(-1);
  if (/^\d+$/.test(last)) return parts.length > 2 ? `${parts.at(-2) === "cross" ? "head" : parts.at(-2)} ${last}` : `layer ${last}`;
  return { feedforward: "feed-forward", cross: "attention" }[last] ?? last;
}

/**
 * A table for one stack. `pressed(site)` is a short text for a part that was changed ("off", "×0.5"), or null;
 * `amount(site)` how much its output differs, as a share of the largest, or null; `pick(site)` is called on a click.
 */
export function partsTable(stack, { pressed, amount, about, pick }) {
  const items = [];
  const cell = (site) => {
    const [mark, share] = [pressed(site), amount(site)];
    const coloured = share !== null && share > 0;
    const button = h("button", {
      type: "button", class: mark ? "part changed" : "part", data: { site }, "aria-pressed": String(Boolean(mark)), onclick: () => pick(site),
      style: coloured && !mark ? { "background-color": shade(share ** 2), color: ink(share ** 2) } : {},
    }, shortName(site), mark ? h("small", {}, mark) : null);
    items.push(button);
    return tip(button, () => [h("strong", {}, site), ...about(site).map((line) => h("div", {}, line))]);
  };
  const rows = stack.layers.map((layer) => h("tr", {}, h("th", { scope: "row" }, layerName(layer) || layer.name), h("td", {}, h("div", { class: "parts" }, [...layer.sites, ...layer.others].map(cell)))));
  const table = h("table", { class: "stack", data: { stack: stack.name } }, h("caption", {}, stack.name), h("tbody", {}, rows));
  walk(table, items, { columns: Math.max(1, ...stack.layers.map((layer) => layer.sites.length + layer.others.length)) });
  return table;
}
