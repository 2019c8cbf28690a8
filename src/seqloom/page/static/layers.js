// What each layer would have said: a table with a row for each layer, the best candidates from left to right.
import { h } from "seqloom/dom";
import { layerName } from "seqloom/names";
import { ink, shade } from "seqloom/palette";
import { chance } from "seqloom/predictions";
import { label } from "seqloom/tokens";

/** "layer 2" for decoder.2, "input" for decoder.input. */
function nameOfLayer(layer) {
  return layerName(layer) || layer.name.split(".").at(-1);
}

/** Rows from the last layer down to the input, as the network is drawn; `marked` are the ids of the tokens asked about. */
export function layerTable(layers, marked) {
  const [token, against] = marked;
  const ranks = Math.max(...layers.map((layer) => layer.top.length));
  const cell = (one, rank) => {
    if (!one) return h("td", { class: "nothing" });
    const asked = one.id === token ? "asked" : one.id === against ? "other" : null;
    return h("td", { class: asked, "data-rank": rank },
      h("span", { class: "candidate", style: { "background-color": shade((one.probability ?? 0) ** 2), color: ink((one.probability ?? 0) ** 2) } },
        h("span", { class: "piece", dir: "auto" }, label(one)), h("small", {}, chance(one.probability))));
  };
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates after each layer" },
    h("table", { class: "layers" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "after"), h("th", { scope: "col", colspan: ranks }, "most probable first"))),
      h("tbody", {}, [...layers].reverse().map((layer) =>
        h("tr", { "data-layer": layer.name }, h("th", { scope: "row" }, nameOfLayer(layer)), Array.from({ length: ranks }, (_, rank) => cell(layer.top[rank], rank)))))));
}
