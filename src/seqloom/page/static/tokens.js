// Tokens as a row of buttons: pieces of a text, with their ids, offsets and whatever else is known of them.
import { directionOf } from "seqloom/direction";
import { fillRow, h, walk } from "seqloom/dom";
import { point, tips } from "seqloom/tooltip";

/** The text of a token as it is shown: spaces and line ends are made visible. */
export function label(token) {
  const named = { "Ġ": "␣", "▁": "␣", "Ċ": "↵", "ĉ": "⇥" }[token.text]; // how tokenizers spell white space
  if (named) return named;
  return token.text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}

/** The side of a trace with this name. */
export function sideOf(trace, name) {
  return trace.sides.find((side) => side.name === name);
}

/** What a tooltip says about a token. */
export function about(token, index, ...more) {
  const place = token.start === null || token.start === undefined ? "added by the tokenizer" : `characters ${token.start}–${token.end}`;
  return [h("strong", { dir: "auto" }, label(token)), h("div", {}, `token ${index} · id ${token.id} · ${place}`), ...more.map((line) => h("div", {}, line))];
}

/**
 * A row of tokens. Options: `onhover(index | null)` on pointer and focus, `onpick(index)` on click and Enter, `more(index)`
 * lines for the tooltip, `below(index)` a small text under the token, `chosen` the index that is marked, `id` of the row.
 * A long row is filled some tokens at a time; `row.filled` is a promise.
 */
export function tokenRow(side, { id, onhover, onpick, more = () => [], below, chosen = null } = {}) {
  const row = h("div", { id, class: "tokens", dir: directionOf(side.text), role: "group", "aria-label": `tokens of the ${side.name}` });
  const indexOf = (element) => Number(element.dataset.index);
  row.filled = fillRow(row, side.tokens.length, (index) => {
    const token = side.tokens[index];
    return h("button", {
      type: "button", class: token.special ? "token special" : "token", dir: "auto", data: { side: side.name, index },
      tabindex: index === Math.max(chosen ?? 0, 0) ? 0 : -1, "aria-pressed": onpick ? String(index === chosen) : null,
    }, h("span", { class: "piece" }, label(token)), below ? h("small", {}, below(index)) : null);
  });
  tips(row, ".token", (element) => about(side.tokens[indexOf(element)], indexOf(element), ...more(indexOf(element))));
  if (onhover) point(row, ".token", (element) => onhover(element && indexOf(element)));
  if (onpick) row.addEventListener("click", (event) => { const element = event.target.closest(".token"); if (element) onpick(indexOf(element)); });
  walk(row, [], { selector: ".token" });
  return row;
}
