// Occurrences of a word as numbered points in a plane, and how alike they are after each layer.
import { s, walk } from "seqloom/dom";
import { ticksOf } from "seqloom/columns";
import { CATEGORIES } from "seqloom/palette";

const RADIUS = 9;
const EDGE = 22;
const BELOW = 24; // for the caption

const DARK = new Set(["#0072B2"]);

/** The colour of a group of sentences, and the one of a number on it: [ground, ink]. */
export function groupColours(group) {
  const ground = CATEGORIES[group % CATEGORIES.length];
  return [ground, DARK.has(ground) ? "#fff" : "#000"];
}

/**
 * The plane of all layers: one scale for every layer and both directions, so that distances can be compared. Returns
 * {svg, show(layer)}; points move when another layer is shown. `pick(index)` is called on a click.
 */
export function planeOf(layers, groups, { width, height, pick, tell }) {
  const [cx, cy] = [width / 2, (height - BELOW) / 2];
  const reach = [0, 1].map((axis) => Math.max(1e-6, ...layers.flatMap((layer) => layer.points.map((point) => Math.abs(point[axis])))));
  const scale = Math.min((cx - EDGE) / reach[0], (cy - EDGE) / reach[1]);
  const caption = s("text", { x: 2, y: height - 6 });
  const points = groups.map((group, index) => tell(s("g", { class: "point", "data-occurrence": index, tabindex: -1, role: "button", "aria-label": `sentence ${index + 1}`, onclick: () => pick(index),
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(index); } } },
  s("circle", { r: RADIUS, fill: groupColours(group)[0] }), s("text", { "text-anchor": "middle", "dominant-baseline": "central", style: { fill: groupColours(group)[1] } }, String(index + 1))), index));
  const svg = s("svg", { class: "plane", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Occurrences in the plane of two principal components" },
    s("rect", { class: "field", x: 0.5, y: 0.5, width: width - 1, height: height - BELOW - 1, rx: 8 }),
    s("line", { class: "axis", x1: 0, x2: width, y1: cy, y2: cy }), s("line", { class: "axis", x1: cx, x2: cx, y1: 0, y2: height - BELOW }), caption, points);
  walk(svg, points);
  const show = (layer, chosen) => {
    const { explained } = layers[layer];
    const [first, second] = explained.map((share) => `${(100 * share).toFixed(0)}%`);
    caption.textContent = explained[0] ? `across: 1st principal component, ${first} of the variance · up: 2nd, ${second}` : "all vectors are the same: there is no variance";
    points.forEach((point, index) => {
      const [x, y] = layers[layer].points[index];
      point.style.transform = `translate(${(cx + x * scale).toFixed(1)}px, ${(cy - y * scale).toFixed(1)}px)`;
      point.classList.toggle("chosen", index === chosen);
    });
    if (points[chosen] && points[chosen] !== document.activeElement) svg.append(points[chosen]); // above the others
  };
  return { svg, show };
}

/** Two lines over the layers: the word with itself in other sentences, and with the other words. A click picks a layer. */
export function likenessChart(layers, chosen, { width, height, pick }) {
  const [left, right, top, bottom] = [38, 14, 30, 34];
  const series = [["self_similarity", "with itself elsewhere"], ["to_others", "with other words"]].filter(([key]) => layers.some((layer) => layer[key] !== null));
  const values = layers.flatMap((layer) => series.map(([key]) => layer[key])).filter((value) => value !== null);
  const low = Math.min(0, ...values);
  const x = (index) => left + (layers.length > 1 ? (index / (layers.length - 1)) * (width - left - right) : 0);
  const y = (value) => top + ((1 - value) / (1 - low)) * (height - top - bottom);
  const every = Math.ceil(layers.length / Math.max(2, Math.floor((width - left) / 62)));
  const line = ([key, name], index) => {
    const known = layers.map((layer, at) => [at, layer[key]]).filter(([, value]) => value !== null);
    return s("g", { class: key === "to_others" ? "series other" : "series self" }, s("path", { d: known.map(([at, value], k) => `${k ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("") }),
      known.map(([at, value]) => s("circle", { cx: x(at), cy: y(value), r: 3.2 })),
      s("circle", { cx: left + 6 + 180 * index, cy: 9, r: 4 }), s("text", { x: left + 16 + 180 * index, y: 13 }, name));
  };
  return s("svg", { class: "likeness", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Mean cosine of the word with itself and with other words, after each layer" },
    ticksOf(low, 1, 4).map((value) => s("g", { class: "axis" }, s("line", { x1: left, x2: width - right, y1: y(value), y2: y(value) }), s("text", { x: left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, String(value).replace("-", "−")))),
    s("rect", { class: "now", x: x(chosen) - 7, y: top - 4, width: 14, height: height - top - bottom + 8, rx: 4 }), series.map(line),
    layers.map((layer, index) => (index % every && index !== layers.length - 1 ? null : s("text", { class: "layer", x: x(index), y: height - bottom + 18, "text-anchor": index === 0 ? "start" : index === layers.length - 1 ? "end" : "middle" }, layer.name))),
    layers.map((layer, index) => s("rect", { class: "hit", x: x(index) - (width - left - right) / (2 * Math.max(1, layers.length - 1)), y: 0, width: (width - left - right) / Math.max(1, layers.length - 1), height, onclick: () => pick(index) })));
}
