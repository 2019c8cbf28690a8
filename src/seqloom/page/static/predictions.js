// Which prediction of a trace is looked at, and which token it is compared with: shared by the views that explain one.
import { fillRow, h, walk } from "seqloom/dom";
import { directionOf } from "seqloom/direction";
import { percent } from "seqloom/numbers";
import { label, sideOf } from "seqloom/tokens";
import { tips } from "seqloom/tooltip";

/** The index that the address names, or the first prediction. */
export function positionOf(view) {
  const wanted = Number(view.state.position ?? 0);
  return Number.isInteger(wanted) && wanted >= 0 && wanted < view.trace.predictions.length ? wanted : 0;
}

/** The token that a prediction is about, where it is part of the text: what the model read there, or wrote. */
export function tokenThere(trace, prediction) {
  return prediction.of ? sideOf(trace, prediction.of[0])?.tokens[prediction.of[1]] ?? null : null;
}

/** What the button of a prediction says: what stands there and, below it, its probability or its tag. */
function caption(trace, prediction) {
  const at = prediction.at ? sideOf(trace, prediction.at[0])?.tokens[prediction.at[1]] : null;
  if (trace.task === "tagging" && at) return [wordAt(trace, prediction.at) ?? label(at), prediction.label];
  const there = tokenThere(trace, prediction);
  return [there ? label(there) : shown(prediction.label), chance(prediction.probability)];
}

function wordAt(trace, [name, index]) {
  const side = sideOf(trace, name);
  return side.words[side.tokens[index].word]?.text ?? null;
}

/** A label or the text of a token that is no part of a text: blanks are made visible. */
export function shown(text) {
  return label({ text: text ?? "" });
}

/** A prediction in one line: a tag with its word, or what is predicted. */
export function lineFor(trace, prediction) {
  const word = trace.task === "tagging" && prediction.at ? wordAt(trace, prediction.at) : null;
  return word === null ? shown(prediction.label) : `${word} ${prediction.label}`;
}

/** A probability as a percentage; nothing where a number is predicted, which has none. */
export function chance(probability) {
  if (probability === null || probability === undefined) return "";
  return probability > 0 && probability < 0.0005 ? "< 0.1%" : percent(probability);
}

/** A row of buttons, one for each prediction; picking one changes the address. Nothing where there is only one. */
export function predictionRow(view) {
  const { trace } = view;
  if (trace.predictions.length < 2) return null;
  const chosen = positionOf(view);
  const row = h("div", { id: "predictions", class: "tokens", dir: directionOf((sideOf(trace, "target") ?? trace.sides[0]).text), role: "group", "aria-label": "Which prediction" });
  row.filled = fillRow(row, trace.predictions.length, (index) => {
    const [text, below] = caption(trace, trace.predictions[index]);
    const { direction } = trace.predictions[index];
    return h("button", { type: "button", class: "token", dir: "auto", data: { prediction: index }, tabindex: index === chosen ? 0 : -1, "aria-pressed": String(index === chosen) },
      h("span", { class: "piece" }, text), h("small", {}, below), direction ? h("small", {}, direction) : null);
  });
  tips(row, ".token", (element) => [h("strong", {}, `prediction ${element.dataset.prediction}`), ...trace.predictions[element.dataset.prediction].top.slice(0, 5).map((one) => h("div", {}, `${shown(one.text)} ${chance(one.probability)}`))]);
  row.addEventListener("click", (event) => {
    const element = event.target.closest(".token");
    if (element) view.set({ position: element.dataset.prediction, "why.token": null, "why.against": null });
  });
  walk(row, [], { selector: ".token" });
  return h("div", { class: "chooser" }, h("h2", {}, "Which prediction?"), row);
}

/** The candidates of a prediction: [{id, text, probability}], the token that stands there among them. */
export function candidatesOf(trace, prediction) {
  const found = new Map(prediction.top.map((one) => [one.id, one]));
  if (!found.has(prediction.id)) found.set(prediction.id, { id: prediction.id, text: prediction.label, probability: prediction.probability });
  const there = tokenThere(trace, prediction);
  if (there && !found.has(there.id)) found.set(there.id, { id: there.id, text: there.text, probability: null });
  return [...found.values()];
}

/** "Why A" and "rather than B": two lists of the candidates. The keys of the address are why.token and why.against. */
export function contrast(view, prediction) {
  const candidates = candidatesOf(view.trace, prediction);
  const asked = (key) => candidates.find((one) => String(one.id) === view.state[key])?.id ?? null;
  const token = asked("why.token") ?? prediction.id;
  const against = asked("why.against") === token ? null : asked("why.against");
  if (candidates.length < 2) return { token, against: null, controls: null };
  const option = (one, chosen) => h("option", { value: one.id, selected: one.id === chosen },
    one.probability === null ? shown(one.text) : `${shown(one.text)}  (${chance(one.probability)})`);
  const controls = [
    h("label", {}, "Why", h("select", { id: "why-token", onchange: (event) => view.set({ "why.token": event.target.value === String(prediction.id) ? null : event.target.value }) },
      candidates.map((one) => option(one, token)))),
    h("label", {}, "rather than", h("select", { id: "why-against", onchange: (event) => view.set({ "why.against": event.target.value || null }) },
      h("option", { value: "", selected: against === null }, "nothing: the logit itself"),
      candidates.filter((one) => one.id !== token).map((one) => option(one, against)))),
  ];
  return { token, against, controls };
}

/** The text of a candidate by its id. */
export function textOf(trace, prediction, id) {
  return shown(candidatesOf(trace, prediction).find((one) => one.id === id)?.text ?? `token ${id}`);
}
