// The charts of a training, and of two side by side: what each draws from the history of a run (runs/history.py).
import { CATEGORIES, dark, ramp } from "seqloom/palette";
import { count } from "seqloom/numbers";

const MANY = 7; // layers that categories can still tell apart

/**
 * [{id, title, about, chart}] for the chart elements of a group: "quality" (how good it is) or "course" (how it went).
 * `other` is a second run, drawn with dashed lines; `scale` is that of the loss.
 */
export function chartsOf(group, history, other, scale) {
  const marks = history.restarts.map(({ step, why, time }) => ({ step, words: `resumed ${time.slice(0, 16).replace("T", " ")}: ${why}` }));
  const until = Math.max(...[history, other].filter(Boolean).map((run) => run.progress.step));
  const draw = (title, series, more = {}) => ({ title, series, marks, until, ...more });
  const quality = () => [
    { id: "loss", title: "Loss", about: lossAbout(history), chart: draw("loss", both(history, other, lossSeries), { scale, height: 320 }) },
    ...measures(history, other).map((name) => ({
      id: `valid-${name}`, title: `Validation ${spelled(name)}`, about: sampleAbout(history, name),
      chart: draw(spelled(name), both(history, other, (run) => validSeries(run, name)), name === "perplexity" ? {} : { scale: "linear" }),
    })),
  ];
  const course = () => [
    { id: "layers", title: "Gradient norm by layer", about: layersAbout(history), chart: draw("gradient norm", layerSeries(history), { scale: "log", height: 280 }) },
    { id: "norm", title: "Gradient norm", about: "Before it is clipped; an update from a gradient that is not finite is never made.", chart: draw("gradient norm", both(history, other, (run) => stepSeries(run, "norm", "all layers", 0))) },
    { id: "rate", title: "Learning rate", about: "As a share of its peak.", chart: draw("share of the peak", both(history, other, (run) => stepSeries(run, "rate", "rate", 2)), { from: 0, scale: "linear" }) },
    { id: "speed", title: "Speed", about: "Validations are not counted.", chart: draw("predictions a second", both(history, other, speedSeries), { from: 0, scale: "linear" }) },
  ];
  return (group === "quality" ? quality() : course()).filter(({ chart }) => chart.series.some((one) => one.values.some((value) => value !== null)));
}

/** A colour that can be told from the page's ground, light or dark. */
function colour(index) {
  const light = dark() ? { "#0072B2": "#56B4E9", "#D55E00": "#F5854A" } : { "#E69F00": "#B87C00", "#56B4E9": "#2B8CC4", "#CC79A7": "#B8588E" };
  return light[CATEGORIES[index]] ?? CATEGORIES[index];
}

function both(history, other, series) {
  const named = (run, more) => series(run).map((one) => ({ ...one, name: other ? `${one.name}, ${run.name}` : one.name, ...more }));
  return [...named(history, {}), ...(other ? named(other, { dashed: true }) : [])];
}

function lossSeries(run) {
  const { train, valid } = run;
  const spread = train.each > 1 ? { low: train.low, high: train.high } : {};
  return [
    { name: "training", colour: colour(0), steps: train.steps, values: train.loss, ...spread },
    { name: "validation", colour: colour(3), steps: valid.steps, values: valid.measures.loss ?? [], dots: true, wide: true },
  ].filter((one) => one.values.length);
}

function validSeries(run, name) {
  return [{ name: spelled(name), colour: colour(3), steps: run.valid.steps, values: run.valid.measures[name] ?? [], dots: true, wide: true }];
}

function stepSeries(run, key, name, index) {
  return [{ name, colour: colour(index), steps: run.train.steps, values: run.train[key] }];
}

function speedSeries(run) {
  return [{ name: "speed", colour: colour(4), steps: run.speed.steps, values: run.speed.speed, dots: run.speed.steps.length < 40 }];
}

function layerSeries({ layers }) {
  const names = Object.keys(layers.norms);
  const shades = ramp();
  const shadeOf = (index) => {
    const at = 3 * Math.round(255 * (0.32 + (0.68 * index) / Math.max(names.length - 1, 1)));
    return `rgb(${shades[at]} ${shades[at + 1]} ${shades[at + 2]})`;
  };
  return names.map((name, index) => ({
    name, colour: names.length > MANY ? shadeOf(index) : colour(index), steps: layers.steps, dots: layers.steps.length < 40,
    values: layers.norms[name].map((value) => (value > 0 ? value : null)),
  }));
}

/** A metric as the literature writes it. */
export function spelled(metric) {
  return { bleu: "BLEU", chrf: "chrF", ter: "TER", macro_f1: "macro-F1", span_f1: "F1 of spans" }[metric] ?? metric.replaceAll("_", " ");
}

function measures(history, other) {
  const names = [history, other].filter(Boolean).flatMap((run) => Object.keys(run.valid.measures));
  return [...new Set(names)].filter((name) => name !== "loss");
}

function lossAbout({ train, valid, settings }) {
  const smoothing = Number(settings.find(({ key }) => key === "train.label_smoothing")?.value ?? 0);
  const parts = [train.each > 1 ? `Each point of training is the mean of ${count(train.each)} steps; the band goes from the lowest to the highest of them.` : "Every step is drawn."];
  if (valid.all > valid.steps.length) parts.push(`${count(valid.steps.length)} of ${count(valid.all)} validations are drawn.`);
  if (valid.steps.length) parts.push(`Training is measured with dropout${smoothing ? ` and a label smoothing of ${smoothing}` : ""}, validation without, so the curves need not meet.`);
  return parts.join(" ");
}

function layersAbout({ layers }) {
  const part = layers.all > layers.steps.length ? ` ${count(layers.steps.length)} of ${count(layers.all)} measurements are drawn.` : "";
  return `Measured at every tenth of the first hundred steps, then at every hundredth.${part}`;
}

function sampleAbout({ valid }, name) {
  return valid.sample && name !== "perplexity" ? `Of ${valid.sample}.` : "";
}
