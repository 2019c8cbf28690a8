// Tokens as a row of buttons: pieces of a text, with their ids, offsets and whatever else is known of them.
import { h, walk } from "seqloom/dom";
import { tip } from "seqloom/tooltip";

/** The text of a token as it is shown: spaces and line ends are made visible. */
export function label(token) {
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
 */
export function tokenRow(side, { id, onhover, onpick, more = () => [], below, chosen = null } = {}) {
  const items = side.tokens.map((token, index) => {
    const button = h("button", {
      type: "button", class: token.special ? "token special" : "token", dir: "auto", data: { side: side.name, index },
      "aria-pressed": onpick ? String(index === chosen) : null,
      onpointerenter: () => onhover?.(index), onpointerleave: () => onhover?.(null),
      onfocus: () => onhover?.(index), onblur: () => onhover?.(null), onclick: () => onpick?.(index),
    }, h("span", { class: "piece" }, label(token)), below ? h("small", {}, below(index)) : null);
    return tip(button, () => about(token, index, ...more(index)));
  });
  const row = h("div", { id, class: "tokens", dir: "auto", role: "group", "aria-label": `tokens of the ${side.name}` }, items);
  walk(row, items, { chosen: Math.max(chosen ?? 0, 0) });
  return row;
}
