// A chart of curves over steps: two axes, a legend, marks, and the numbers under the pointer or the arrow keys.
import { h, put, s } from "seqloom/dom";
import { count, number } from "seqloom/numbers";
import { hideTip, showTip } from "seqloom/tooltip";

const MARGIN = { top: 24, right: 16, bottom: 36, left: 52 };
const STEEP = 1000; // a curve whose largest value is so many times its smallest is drawn on a logarithmic axis
let made = 0;

/**
 * <seq-chart>. `show({title, series, marks, chosen, height, scale, from, until})` draws it:
 *   series   [{name, colour, steps, values, low?, high?, dots?, dashed?, wide?}]; a value may be null: the line has a gap there
 *   marks    [{step, words}]: where it was resumed, and what to say about it; chosen: a step with a line of its own
 *   scale    "linear", "log", or undefined: whichever suits the values
 *   from     the lowest value that the axis must show, such as 0; until: the last step that the other axis must show
 */
export class Chart extends HTMLElement {
  #given = null;
  #at = null; // the step that is pointed at
  #observer = new ResizeObserver(() => this.#draw());
  #id = `chart-${++made}`;

  connectedCallback() { this.#observer.observe(this); }
  disconnectedCallback() { this.#observer.disconnect(); hideTip(); }

  show(given) {
    this.#given = given;
    this.#draw();
  }

  get svg() { return this.querySelector("svg"); }

  /** Every point of every curve, for a file of comma-separated values. */
  get table() {
    const rows = this.#given.series.flatMap((one) => one.steps.map((step, index) => [one.name, step, one.values[index]]));
    return { columns: ["curve", "step", this.#given.title], rows };
  }

  #draw() {
    const width = Math.floor(this.clientWidth);
    if (!this.#given || width < 60) return;
    const { series, marks = [], height = 220, title, scale, from, chosen, until } = this.#given;
    const drawn = series.filter((one) => one.values.some((value) => value !== null));
    if (!drawn.length) {
      put(this, h("p", { class: "small" }, "There is nothing to draw yet."));
      return;
    }
    const inner = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
    const x = linear(0, Math.max(until ?? 0, ...drawn.map((one) => one.steps[one.steps.length - 1]), 1), inner.left, inner.right);
    const values = drawn.flatMap((one) => one.values.filter((value) => value !== null));
    const y = axis(values, inner, scale, from);
    const across = ticks(x.low, x.high, Math.max(2, Math.floor((inner.right - inner.left) / 90))).filter(Number.isInteger);
    const clip = `${this.#id}-inside`;
    const pointer = s("g", { class: "pointer" });
    const svg = s("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": describe(title, drawn) },
      s("clipPath", { id: clip }, s("rect", { x: inner.left - 4, y: inner.top - 4, width: inner.right - inner.left + 8, height: inner.bottom - inner.top + 8 })),
      s("g", { class: "axis" },
        y.ticks.map((value) => [s("line", { class: "grid", x1: inner.left, x2: inner.right, y1: y(value), y2: y(value) }),
          s("text", { x: inner.left - 7, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, short(value))]),
        across.map((step) => [s("line", { class: "tick", x1: x(step), x2: x(step), y1: inner.bottom, y2: inner.bottom + 4 }),
          s("text", { x: x(step), y: inner.bottom + 16, "text-anchor": "middle" }, count(step))]),
        s("line", { class: "base", x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom }),
        s("text", { class: "name", x: inner.right, y: inner.bottom + 31, "text-anchor": "end" }, "step"),
        s("text", { class: "name", x: 2, y: 11 }, `${title}${y.logarithmic ? ", logarithmic axis" : ""}`)),
      s("g", { "clip-path": `url(#${clip})` },
        chosen === undefined || chosen > x.high ? null : s("line", { class: "chosen", x1: x(chosen), x2: x(chosen), y1: inner.top, y2: inner.bottom }),
        marks.map((mark) => s("line", { class: "restart", x1: x(mark.step), x2: x(mark.step), y1: inner.top, y2: inner.bottom })),
        drawn.map((one) => curve(one, x, y))),
      pointer);
    this.#listen(svg, pointer, { drawn, x, y, inner, marks });
    put(this, svg, drawn.length > 1 || marks.length ? legend(drawn, marks) : null);
  }

  #listen(svg, pointer, parts) {
    const { drawn, x, inner } = parts;
    const steps = [...new Set(drawn.flatMap((one) => one.steps))].sort((a, b) => a - b);
    const point = (step, clientX, clientY) => {
      this.#at = step;
      put(pointer, s("line", { x1: x(step), x2: x(step), y1: inner.top, y2: inner.bottom }), drawn.map((one) => dot(one, step, parts)));
      showTip(clientX, clientY, ...said(step, parts));
    };
    const leave = () => { this.#at = null; put(pointer); hideTip(); };
    svg.addEventListener("pointermove", (event) => {
      const place = svg.getBoundingClientRect();
      const wanted = x.invert(event.clientX - place.left);
      point(nearest(steps, wanted), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const at = this.#at === null ? steps.length - 1 : steps.indexOf(this.#at);
      const next = { ArrowLeft: at - (this.#at === null ? 0 : 1), ArrowRight: at + 1, Home: 0, End: steps.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const step = steps[Math.min(Math.max(next, 0), steps.length - 1)];
      const place = svg.getBoundingClientRect();
      point(step, place.left + x(step), place.top + inner.top);
    });
  }
}

customElements.define("seq-chart", Chart);

function linear(low, high, from, to) {
  const span = high - low || 1;
  const place = (value) => from + ((value - low) / span) * (to - from);
  return Object.assign(place, { low, high, invert: (at) => low + ((at - from) / (to - from)) * span });
}

/** The axis that suits some values: "linear", or "log" where the largest is far from the smallest. */
export function suits(values) {
  const real = values.filter((value) => value !== null);
  return Math.min(...real) > 0 && Math.max(...real) / Math.min(...real) > STEEP ? "log" : "linear";
}

/** The vertical axis: a function of a value, with its ticks. */
function axis(values, inner, scale, from) {
  const least = Math.min(...values);
  const most = Math.max(...values);
  const logarithmic = least > 0 && (scale ?? suits(values)) === "log";
  const wanted = Math.max(2, Math.floor((inner.bottom - inner.top) / 42));
  if (logarithmic) {
    const low = Math.log10(least) - 0.03;
    const place = linear(low, Math.max(Math.log10(most) + 0.03, low + 0.1), inner.bottom, inner.top);
    return Object.assign((value) => place(Math.log10(value)), { logarithmic, ticks: powers(least, most, wanted) });
  }
  if (from === undefined && least > 0 && least < most / 3) from = 0;
  const low = from === undefined ? least : Math.min(from, least);
  const marks = ticks(low, Math.max(most, low), wanted);
  const step = marks.length > 1 ? marks[1] - marks[0] : Math.abs(most) || 1;
  const bottom = from !== undefined && from <= least ? from : Math.min(low, most) - 0.02 * Math.max(step, most - low);
  const place = linear(bottom, Math.max(most, bottom + 1e-9) + 0.03 * Math.max(most - bottom, step * 0.5), inner.bottom, inner.top);
  return Object.assign(place, { logarithmic, ticks: marks });
}

/** Round numbers from `low` to `high`, about `wanted` of them. */
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index++) found.push(Number((index * step).toPrecision(12)));
  return found;
}

function powers(low, high, wanted) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = last - first <= 1 ? [1, 2, 3, 5, 7] : last - first <= 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / (wanted + 1)));
  const found = [];
  for (let power = first; power <= last; power += every) for (const factor of factors) found.push(factor * 10 ** power);
  const inside = found.filter((value) => value >= low * 0.93 && value <= high * 1.07);
  return inside.length ? inside : [low];
}

function curve({ colour, steps, values, low, high, dots, dashed, wide }, x, y) {
  const runs = [];
  let run = [];
  steps.forEach((step, index) => {
    if (values[index] === null) { if (run.length) runs.push(run); run = []; } else run.push([x(step), y(values[index]), index]);
  });
  if (run.length) runs.push(run);
  const write = ([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`;
  const edge = (bound, part) => part.map(([left, , index]) => [left, y(Math.max(bound[index] ?? values[index], y.logarithmic ? 1e-300 : -Infinity))]);
  const lone = dots || runs.some((part) => part.length === 1);
  return s("g", { style: { "--colour": colour } },
    low ? runs.map((part) => s("polygon", { class: "spread", points: [...edge(high, part), ...edge(low, part).reverse()].map(write).join(" ") })) : null,
    runs.map((part) => s("polyline", { class: `curve${dashed ? " dashed" : ""}${wide ? " wide" : ""}`, points: part.map(write).join(" ") })),
    lone ? runs.flatMap((part) => (dots || part.length === 1 ? part.map(([left, top]) => s("circle", { class: dashed ? "hollow" : "point", cx: left.toFixed(1), cy: top.toFixed(1), r: part.length > 60 ? 1.6 : 3 })) : [])) : null);
}

function valueAt({ steps, values }, step) {
  const index = steps.indexOf(nearest(steps, step));
  return { step: steps[index], value: values[index] };
}

function dot(one, step, { x, y }) {
  const found = valueAt(one, step);
  return found.value === null ? null : s("circle", { cx: x(found.step), cy: y(found.value), r: 4, style: { fill: one.colour } });
}

/** What the tooltip says at a step. */
function said(step, { drawn, marks }) {
  const lines = drawn.map((one) => {
    const found = valueAt(one, step);
    const there = found.step === step ? "" : ` (step ${count(found.step)})`;
    return h("div", {}, h("span", { class: `swatch${one.dashed ? " dashed" : ""}`, style: { "--colour": one.colour } }), `${one.name} `, h("b", {}, number(found.value)), there);
  });
  const here = marks.filter((mark) => mark.step === step).map((mark) => h("div", {}, mark.words));
  return [h("strong", {}, `step ${count(step)}`), ...lines.slice(0, 14), lines.length > 14 ? h("div", {}, `and ${lines.length - 14} more`) : null, ...here].filter(Boolean);
}

function legend(drawn, marks) {
  return h("div", { class: "keys" },
    drawn.map((one) => h("span", {}, h("i", { class: `swatch${one.dashed ? " dashed" : ""}`, style: { "--colour": one.colour } }), one.name)),
    marks.length ? h("span", {}, h("i", { class: "swatch mark" }), marks.length === 1 ? "resumed here" : `resumed (${marks.length} times)`) : null);
}

function nearest(sorted, wanted) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - sorted[low - 1] <= sorted[low] - wanted ? sorted[low - 1] : sorted[low];
}

/** A number beside an axis. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(0).replace("e+", "e").replaceAll("-", "−");
  return Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 }).replace("-", "−");
}

function describe(title, drawn) {
  const parts = drawn.slice(0, 8).map((one) => {
    const real = one.values.filter((value) => value !== null);
    return `${one.name} from ${number(real[0])} to ${number(real[real.length - 1])}`;
  });
  return `${title} over steps: ${parts.join("; ")}${drawn.length > 8 ? `; and ${drawn.length - 8} more curves` : ""}. The arrow keys read the numbers.`;
}
