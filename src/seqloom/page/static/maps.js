// Maps: weights of rows (queries) over columns (keys), whole or by words, with or without special tokens.
import { breathe } from "seqloom/dom";
import { label, sideOf } from "seqloom/tokens";

const PIECE = 1_900_000; // bytes of one answer, at most

/** A map as {rows, columns, data, cell}: data[r * columns + c]. It is fetched in pieces of less than 2 MB. */
export async function readMap(view, stack, site, norm, alive) {
  const columns = sideOf(view.trace, stack.keys).tokens.length;
  const rows = stack.kind === "pool" ? 1 : sideOf(view.trace, stack.queries).tokens.length;
  const map = { rows, columns, data: new Float64Array(rows * columns), cell: null };
  const step = Math.max(1, Math.floor(PIECE / (4 * columns)));
  for (let from = 0; from < rows; from += step) {
    const range = step >= rows ? null : `${from}:${Math.min(from + step, rows)}`;
    const { weights, metadata } = await view.source.tensors(`/trace/${view.trace.id}/mixing`, { site, norm: norm ? 1 : 0, rows: range });
    if (!alive()) return null;
    map.data.set(weights.data, from * columns);
    map.cell = metadata.cell ?? null; // in a saved file: the one whose arithmetic it holds
    await breathe();
  }
  return map;
}

/** What stands for one row or column: a token, or the tokens of a word. [{label, indices, special}] */
export function groupsOf(side, { words = false, special = true } = {}) {
  const groups = [];
  side.tokens.forEach((token, index) => {
    if (token.special && !special) return;
    const last = groups.at(-1);
    if (words && !token.special && last && last.word === token.word && last.indices.at(-1) === index - 1) {
      last.indices.push(index);
      last.label += label(token);
    } else groups.push({ label: label(token), indices: [index], special: token.special, word: token.special ? null : token.word });
  });
  if (words) {
    const characters = Array.from(side.text); // offsets count characters, not units of UTF-16
    for (const group of groups) {
      const [first, final] = [side.tokens[group.indices[0]], side.tokens[group.indices.at(-1)]];
      if (!group.special && first.start !== null) group.label = characters.slice(first.start, final.end).join("").trim() || group.label;
    }
  }
  return groups;
}

/** What stands for the rows and the columns of a stack's maps; pooling has one row, the text as a whole. */
export function axesOf(trace, stack, options) {
  const columns = groupsOf(sideOf(trace, stack.keys), options);
  if (stack.kind === "pool") return [[{ label: "the text", indices: [0], special: false }], columns];
  const rows = groupsOf(sideOf(trace, stack.queries), options);
  if (stack.queries === stack.keys) return [rows, columns];
  // A decoder that reads a token is about to write the next one, which is what its look at the source is for.
  const next = new Map(trace.predictions.filter((one) => one.at?.[0] === stack.queries).map((one) => [one.at[1], one.label]));
  for (const row of rows) if (next.has(row.indices.at(-1))) row.label += ` ▸ ${label({ text: next.get(row.indices.at(-1)) })}`;
  return [rows, columns];
}

/** The map over groups: sums over the columns of a word, means over its rows. */
export function groupMap(map, rowGroups, columnGroups) {
  const data = new Float64Array(rowGroups.length * columnGroups.length);
  rowGroups.forEach((rows, r) => columnGroups.forEach((columns, c) => {
    let sum = 0;
    for (const row of rows.indices) for (const column of columns.indices) sum += map.data[row * map.columns + column];
    data[r * columnGroups.length + c] = sum / rows.indices.length;
  }));
  return { rows: rowGroups.length, columns: columnGroups.length, data };
}

/** The largest absolute value of a map, and whether any is negative. */
export function rangeOf(map) {
  let peak = 0;
  let negative = false;
  for (const value of map.data) {
    if (value < 0) negative = true;
    const size = Math.abs(value);
    if (size > peak) peak = size;
  }
  return { peak, negative };
}
