// A map as lines: queries on the left, keys on the right, a line as strong as its weight.
import { s } from "seqloom/dom";
import { weight } from "seqloom/numbers";
import { tip } from "seqloom/tooltip";

export const MOST = 80; // tokens a side that can still be told apart
const HEIGHT = 22;
const FAINT = 0.02; // weights below this share of the largest are not drawn

/** {element, choose(r)}; `onpick(r)` when a row is chosen. */
export function lines(map, { rows, columns, peak, space, onpick, describe }) {
  const span = Math.min(260, Math.max(120, space - 330));
  const wide = (groups) => Math.min(180, 8.4 * Math.max(...groups.map((group) => Array.from(group.label).length), 1) + 12);
  const [left, right] = [wide(rows), wide(columns)];
  const height = Math.max(map.rows, map.columns) * HEIGHT + 8;
  const y = (index, many) => 4 + (index + 0.5) * HEIGHT + ((Math.max(map.rows, map.columns) - many) * HEIGHT) / 2;
  const strokes = rows.map((_, r) => s("g", { class: "strokes", data: { row: r } }, columns.map((__, c) => {
    const value = map.data[r * map.columns + c];
    const share = Math.abs(value) / peak;
    if (share < FAINT) return null;
    return s("line", { x1: left, y1: y(r, map.rows), x2: left + span, y2: y(c, map.columns), class: value < 0 ? "negative" : null, style: { "stroke-opacity": String(0.1 + 0.9 * share), "stroke-width": `${0.5 + 3.5 * share}px` } });
  })));
  let chosen = null;
  const show = (r) => {
    strokes.forEach((group, index) => { group.classList.toggle("dimmed", r !== null && index !== r && r === chosen); group.classList.toggle("hidden", r !== null && index !== r && r !== chosen); group.classList.toggle("chosen", index === r); });
    rowTexts.forEach((text, index) => text.classList.toggle("chosen", index === r));
    columnTexts.forEach((text, c) => {
      const share = r === null ? 1 : Math.abs(map.data[r * map.columns + c]) / peak;
      text.style.setProperty("fill-opacity", String(r === null ? 1 : 0.35 + 0.65 * Math.sqrt(share)));
    });
  };
  const rowTexts = rows.map((row, r) => {
    const text = s("text", {
      x: left - 6, y: y(r, map.rows), "text-anchor": "end", "dominant-baseline": "central", class: row.special ? "special pick" : "pick", tabindex: r === 0 ? 0 : -1, role: "button", data: { row: r },
      onpointerenter: () => show(r), onpointerleave: () => show(chosen), onfocus: () => show(r), onblur: () => show(chosen),
      onclick: () => onpick?.(r), onkeydown: (event) => step(event, r),
    }, row.label);
    return tip(text, () => strongest(map, columns, r));
  });
  const step = (event, r) => {
    const next = { ArrowDown: r + 1, ArrowUp: r - 1, Enter: r, " ": r }[event.key];
    if (next === undefined || !rowTexts[next]) return;
    event.preventDefault();
    if (next === r) onpick?.(r);
    else {
      rowTexts.forEach((text, index) => text.setAttribute("tabindex", index === next ? 0 : -1));
      rowTexts[next].focus();
    }
  };
  const columnTexts = columns.map((column, c) => s("text", { x: left + span + 6, y: y(c, map.columns), "dominant-baseline": "central", class: column.special ? "special" : null }, column.label));
  const element = s("svg", { class: "lines", width: left + span + right, height, role: "group", "aria-label": describe }, strokes, rowTexts, columnTexts);
  return { element, choose: (r) => { chosen = r; show(r); } };
}

function strongest(map, columns, r) {
  const row = columns.map((column, c) => [column.label, map.data[r * map.columns + c]]).sort((a, b) => b[1] - a[1]);
  return row.slice(0, 4).map(([label, value]) => `${label} ${weight(value)}`).join("   ");
}
