// A sum as a waterfall: each part is a bar that begins where the one before it ended; the last one ends at the sum.
import { s, walk } from "seqloom/dom";
import { columnOf, ticksOf } from "seqloom/columns";

const ROW = 22;
const TOP = 26;
const VALUES = 84;
const LETTER = 6.5; // pixels, about

/** The parts by layer: "encoder.2.head.5" and "encoder.2.feedforward" both belong to "encoder.2". */
export function byLayer(items) {
  const layers = new Map();
  for (const item of items) {
    const [stack, layer] = item.site.split(".");
    const key = /^\d+$/.test(layer ?? "") ? `${stack}.${layer}` : item.site;
    const named = key === item.site ? item.name : `${stack}, layer ${layer}`;
    const found = layers.get(key);
    if (found) found.value += item.value;
    else layers.set(key, { site: key, name: named, value: item.value });
  }
  return [...layers.values()];
}

/** The largest parts first, whatever their sign. */
export function bySize(items) {
  return [...items].sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
}

/**
 * The drawing: `items` are {site, name, value}; `ending` names the sum. A row whose site `opens` is a link to `open(site)`.
 * Rows carry data-site and their number is in `.value`; the last row has data-site="sum".
 */
export function waterfall(items, { ending, width, label, opens = () => false, open }) {
  const names = Math.min(Math.max(120, Math.ceil(LETTER * Math.max(...items.map((item) => item.name.length), ending.length)) + 18), Math.floor(0.45 * width));
  const total = items.reduce((sum, item) => sum + item.value, 0);
  let running = 0;
  const steps = items.map((item) => ({ ...item, from: running, to: (running += item.value) }));
  const reach = [0, total, ...steps.flatMap((step) => [step.from, step.to])];
  const [low, high] = [Math.min(...reach), Math.max(...reach)];
  const pad = 0.03 * (high - low || 1);
  const plot = width - names - VALUES;
  const x = (value) => names + ((value - low + pad) / (high - low + 2 * pad || 1)) * plot;
  const height = TOP + ROW * (steps.length + 1) + 6;
  const write = columnOf([...items.map((item) => item.value), total]);
  const ticks = ticksOf(low, high, Math.max(3, Math.floor(plot / 55)));

  const axis = ticks.map((value) => s("g", { class: "axis" },
    s("line", { x1: x(value), x2: x(value), y1: TOP - 4, y2: height - 4, class: value === 0 ? "zero" : "tick" }),
    s("text", { x: x(value), y: TOP - 10, "text-anchor": "middle" }, String(value).replace("-", "−"))));
  const rows = steps.map((step, index) => row(step, index));
  const last = row({ site: "sum", name: ending, value: total, from: 0, to: total }, steps.length);
  last.classList.add("sum");
  const drawing = s("svg", { class: "waterfall", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label },
    axis, s("g", { role: "list" }, rows, last));
  walk(drawing, [...drawing.querySelectorAll("a")]);
  return drawing;

  function row(step, index) {
    const y = TOP + ROW * index;
    const [left, right] = [Math.min(step.from, step.to), Math.max(step.from, step.to)];
    const content = [
      s("rect", { class: "ground", x: 0, y, width, height: ROW }),
      s("text", { class: "name", x: names - 10, y: y + ROW / 2, "text-anchor": "end", "dominant-baseline": "central" }, shorten(step.name, (names - 12) / LETTER)),
      index > 0 && step.site !== "sum" ? s("line", { class: "link", x1: x(step.from), x2: x(step.from), y1: y - 4, y2: y + 4 }) : null,
      s("rect", { class: step.value < 0 ? "bar minus" : "bar plus", x: x(left), y: y + 4, width: Math.max(x(right) - x(left), 1), height: ROW - 8, rx: 1.5 }),
      s("text", { class: "value", x: width - 6, y: y + ROW / 2, "text-anchor": "end", "dominant-baseline": "central" }, write(step.value)),
    ];
    const follow = (event) => { event.preventDefault(); open(step.site); };
    return s("g", { class: "row", role: "listitem", "data-site": step.site },
      opens(step.site) ? s("a", { href: "#", "data-open": step.site, "aria-label": `${step.name}: ${write(step.value)}`, onclick: follow }, content) : content);
  }
}

/** A long name without its middle: beginning and end tell parts apart. */
function shorten(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const kept = Math.max(2, Math.floor(most) - 1);
  return `${letters.slice(0, Math.floor(kept / 3)).join("")}…${letters.slice(letters.length - Math.ceil((2 * kept) / 3)).join("")}`;
}
