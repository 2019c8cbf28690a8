// Attribution over the input: the text with a colour and a number for each token, and the sum that they should make.
import { fillRow, h } from "seqloom/dom";
import { columnOf } from "seqloom/columns";
import { directionOf } from "seqloom/direction";
import { groupsOf } from "seqloom/maps";
import { number } from "seqloom/numbers";
import { ink, signedShade } from "seqloom/palette";
import { sideOf } from "seqloom/tokens";

// The palette draws square roots; shares are drawn as they are, so that a small one looks small.
const square = (share) => share * Math.abs(share);

/** The sides of the text, each token on its colour with its number below. */
export function attributionText(trace, found, { words = false } = {}) {
  const sides = Object.entries(found.sides).map(([name, values]) => [sideOf(trace, name), values]);
  const rows = sides.map(([side, values]) => [side, groupsOf(side, { words }).map((group) => ({ ...group, value: group.indices.reduce((sum, index) => sum + values[index], 0) }))]);
  const all = rows.flatMap(([, units]) => units.map((unit) => unit.value));
  const most = all.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
  const write = columnOf(all);
  const row = (side, units) => {
    const list = h("ol", { class: "token-shares", dir: directionOf(side.text), "data-side": side.name, "aria-label": `shares of the ${side.name}` });
    list.filled = fillRow(list, units.length, (index) => {
      const { label, value, special } = units[index];
      const share = square(value / most);
      return h("li", { class: special ? "token-share special" : "token-share", "data-index": index },
        h("span", { class: "piece", dir: "auto", style: { "background-color": signedShade(share), color: ink(share, true) } }, label), h("small", {}, write(value)));
    });
    return [rows.length > 1 ? h("h3", {}, side.name) : null, list];
  };
  return h("div", { class: "attribution" }, rows.map(([side, units]) => row(side, units)), legend(most, write));
}

function legend(most, write) {
  const shades = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1];
  return h("p", { class: "legend signed", "aria-hidden": "true" }, h("span", {}, `against  ${write(-most)}`),
    shades.map((share) => h("i", { style: { "background-color": signedShade(square(share)) } })), h("span", {}, `${write(most)}  for`));
}

/** "Tokens … + biases … = …; the logit is …": the completeness of the attribution, in numbers. */
export function balance(found, question) {
  const tokens = Object.values(found.sides).flat().reduce((sum, value) => sum + value, 0);
  const write = columnOf([tokens, found.biases ?? 0, found.total, found.logit], { plain: true });
  const out = (name, value) => h("output", { data: { number: name } }, write(value));
  const biased = found.biases !== null && found.biases !== undefined;
  const share = found.logit ? Math.abs(found.gap / found.logit) : 0;
  return h("p", { class: "balance" }, "Tokens ", out("tokens", tokens), biased ? [" + biases ", out("biases", found.biases), found.positions ? [" (of which positions ", out("positions", found.positions), ")"] : null, " = ", out("total", found.total)] : null,
    `; ${question} is `, out("logit", found.logit), ". Gap ", h("output", { data: { number: "gap" } }, number(found.gap)), ` (${(100 * share).toFixed(share < 0.1 ? 2 : 0)}%).`);
}

/** "The parts add up to …; the logit is …", and how far they are apart. */
export function sumOf(found, question) {
  const write = columnOf([found.total, found.logit], { plain: true });
  const out = (name, value) => h("output", { data: { number: name } }, write(value));
  return h("p", { class: "balance" }, "The parts add up to ", out("total", found.total), `; ${question} is `, out("logit", found.logit), ". Gap ", h("output", { data: { number: "gap" } }, number(found.gap)), ".");
}

/** The same as a table, for export. */
export function attributionTable(trace, found) {
  return { columns: ["side", "index", "token", "share"],
    rows: Object.entries(found.sides).flatMap(([name, values]) => values.map((value, index) => [name, index, sideOf(trace, name).tokens[index].text, value])) };
}
