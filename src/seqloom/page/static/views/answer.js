// Answer: what the model reads, what it answers, how sure it is, and which inputs an answer comes from.
import { directionOf } from "seqloom/direction";
import { fillRow, h, put, segments, walk } from "seqloom/dom";
import { mirror } from "seqloom/exporting";
import { readMap } from "seqloom/maps";
import { nameOf } from "seqloom/names";
import { number, signed, weight } from "seqloom/numbers";
import { ink, shade, signedShade } from "seqloom/palette";
import { chance } from "seqloom/predictions";
import { label, sideOf, tokenRow } from "seqloom/tokens";
import { point, tips } from "seqloom/tooltip";
import { View, register } from "seqloom/view";

const WAIT = 90; // milliseconds that the pointer rests before an attribution is asked for

class Answer extends View {
  static view = "answer";
  static label = "Answer";
  static about = "What the model read, and what it answered. Point at a part of the answer, or walk through it with the arrow keys: the tokens that it comes from light up. A click keeps it.";

  #aligned = null; // {name, map} for a translation
  #pointed = null;
  #timer = 0;

  figures() {
    const columns = ["side", "index", "token", "id", "start", "end", "special"];
    const tokens = this.trace.sides.flatMap((side) => side.tokens.map((token, index) => [side.name, index, token.text, token.id, token.start, token.end, token.special]));
    const predictions = this.trace.predictions.map((one, index) => [index, one.label, one.probability]);
    const drawn = this.querySelector("#answer-figure");
    return [{ name: "tokens", svg: () => mirror(drawn, ".token"), table: { columns, rows: tokens } }, { name: "predictions", table: { columns: ["position", "label", "probability"], rows: predictions } }];
  }

  async draw(alive) {
    const { trace } = this;
    const cross = trace.task === "translation" ? trace.stacks.find((stack) => stack.queries === "target" && stack.keys === "source") : null;
    const by = this.state["answer.by"] === "attribution" || !cross ? "attribution" : "weights";
    this.#pointed = null;
    const rows = trace.sides.filter((side) => side.name !== "target").map((side) => this.#side(side));
    put(this,
      h("div", { class: "controls" },
        cross ? segments("by", "What lights up", [["weights", "By attention"], ["attribution", "By attribution"]], by, (value) => this.set({ "answer.by": value === "weights" ? null : value })) : null,
        h("span", { id: "lit", class: "small" })),
      h("div", { id: "answer-figure" }, rows, this.#output()), h("div", { id: "candidates", "aria-live": "polite" }), this.#table());
    this.by = by;
    this.#aligned = null;
    await Promise.all([...this.querySelectorAll(".tokens")].map((row) => row.filled));
    if (!alive()) return;
    if (cross && by === "weights") await this.#align(cross, alive);
    if (!alive()) return;
    await this.#light(this.#chosen(), alive);
  }

  /** The prediction of the address, or the first one. */
  #chosen() {
    const position = Number(this.state.position ?? 0);
    return position < this.trace.predictions.length ? position : 0;
  }

  // ---- what is read, and what is answered ----

  #side(side) {
    const names = { source: "Source", text: "Text", target: "Target" };
    return h("section", { class: "side" }, h("h2", {}, names[side.name] ?? side.name), tokenRow(side, { id: `tokens-${side.name}` }));
  }

  #output() {
    const { trace } = this;
    const { predictions } = trace;
    const chosen = this.#chosen();
    const row = h("div", { id: "output", class: "tokens", dir: directionOf(predictions.map((one) => one.label).join(" ")), role: "group", "aria-label": "the answer, token by token" });
    const positionOf = (element) => Number(element.dataset.position);
    row.filled = fillRow(row, predictions.length, (position) => {
      const prediction = predictions[position];
      return h("button", { type: "button", class: "token answer", dir: "auto", data: { position }, tabindex: position === chosen ? 0 : -1, "aria-pressed": String(position === chosen) },
        above(trace, prediction, position), h("span", { class: "piece" }, label({ text: prediction.label })), prediction.probability === null ? null : h("small", {}, chance(prediction.probability)));
    });
    tips(row, ".token", (element) => explain(predictions[positionOf(element)], positionOf(element)));
    point(row, ".token", (element) => this.#point(element && positionOf(element)));
    row.addEventListener("click", (event) => { const element = event.target.closest(".token"); if (element) this.set({ position: positionOf(element) }); });
    walk(row, [], { selector: ".token" });
    return h("section", { class: "side" }, h("h2", {}, headingFor(trace)), h("p", { id: "answer", class: "answer-text", dir: "auto" }, textOf(trace)),
      predictions.length ? row : h("p", { class: "small" }, "Nothing is predicted in this text."));
  }

  /** The candidates of the prediction that is looked at. */
  #candidates(position) {
    const prediction = this.trace.predictions[position];
    const box = this.querySelector("#candidates");
    for (const button of this.querySelectorAll("#output .token")) button.classList.toggle("pointed", Number(button.dataset.position) === position);
    if (!prediction || prediction.probability === null) return put(box);
    const rows = prediction.top ?? [];
    const listed = rows.reduce((sum, one) => sum + one.probability, 0);
    return put(box,
      h("h2", {}, `Candidates ${placeOf(this.trace, prediction)}`),
      h("table", { class: "sources" }, h("tbody", {}, rows.map((one) => h("tr", { class: one.id === prediction.id ? "chosen" : null },
        h("td", { dir: "auto" }, label(one)), h("td", { class: "number" }, weight(one.probability)),
        h("td", { class: "bar" }, h("i", { style: { width: `${100 * one.probability}%`, background: "var(--accent)" } })))))),
      listed < 0.9999 ? h("p", { class: "small" }, `All others together have ${weight(Math.max(1 - listed, 0))}.`) : null);
  }

  #table() {
    const { trace } = this;
    const count = trace.sides.reduce((sum, side) => sum + side.tokens.length, 0);
    const details = h("details", { class: "plain", id: "token-table" }, h("summary", {}, `All ${count} tokens as a table`));
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      details.append(...trace.sides.map((side) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Tokens of the ${side.name}` }, h("table", {}, h("caption", {}, side.name),
        h("thead", {}, h("tr", {}, ["index", "token", "id", "characters"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, side.tokens.map((token, index) => h("tr", {}, h("td", { class: "number" }, index), h("td", { dir: "auto" }, label(token)), h("td", { class: "number" }, token.id), h("td", {}, token.start === null ? "added" : `${token.start}–${token.end}`))))))));
    });
    return details;
  }

  // ---- what lights up ----

  async #align(cross, alive) {
    const found = await this.source.get(`/trace/${this.trace.id}/alignment`);
    if (!alive() || !found.best) return;
    const map = await readMap(this, cross, found.best.site, false, alive);
    if (map) this.#aligned = { name: nameOf(cross, found.best.site), map };
  }

  #point(position) {
    clearTimeout(this.#timer);
    this.#pointed = position;
    const at = position ?? this.#chosen();
    const turn = () => this.isConnected && (this.#pointed ?? this.#chosen()) === at;
    const known = this.by === "weights";
    this.#timer = setTimeout(() => this.#light(at, turn), known ? 0 : WAIT);
  }

  async #light(position, alive) {
    const { trace } = this;
    const prediction = trace.predictions[position];
    if (!prediction) return;
    this.#candidates(position);
    if (this.by === "weights" && this.#aligned && prediction.at) {
      const { name, map } = this.#aligned;
      const row = Array.from(map.data.subarray(prediction.at[1] * map.columns, (prediction.at[1] + 1) * map.columns));
      this.#colour("source", row, 1, false);
      this.#colourOutput([], 1);
      this.#say(`Attention weights of ${name}, the head that aligns best; the stronger the colour, the larger the weight.`);
      return;
    }
    let found;
    try {
      found = await this.source.get(`/trace/${trace.id}/attribution`, { position, method: "conserved" });
    } catch (error) {
      if (alive()) this.#say(error.message);
      return;
    }
    if (!alive()) return;
    const peak = Math.max(...Object.values(found.sides).flat().map(Math.abs), 1e-12);
    for (const [side, values] of Object.entries(found.sides)) this.#colour(side, values, peak, true);
    this.#colourOutput(found.sides.target ?? [], peak);
    const none = trace.task === "translation" && !trace.stacks.some((stack) => stack.name === "cross") ? "The model has no attention to the source. " : "";
    this.#say(`${none}Share of each token in the logit ${number(found.logit)}: blue speaks for it, orange against it. Biases have ${signed(found.biases)}.`);
  }

  #colour(side, values, peak, both) {
    for (const token of this.querySelectorAll(`#tokens-${side} .token`)) {
      const share = (values[Number(token.dataset.index)] ?? 0) / peak;
      token.style.background = both ? signedShade(share) : shade(share);
      token.style.color = ink(share, both);
      token.dataset.share = values[Number(token.dataset.index)] ?? "";
    }
  }

  /** What was written before is read, too: these tokens have their share. */
  #colourOutput(values, peak) {
    for (const button of this.querySelectorAll("#output .token")) {
      const { of } = this.trace.predictions[Number(button.dataset.position)];
      const share = (of?.[0] === "target" ? (values[of[1]] ?? 0) : 0) / peak;
      button.style.background = share ? signedShade(share) : "";
      button.style.color = share ? ink(share, true) : "";
    }
  }

  #say(sentence) {
    this.querySelector("#lit").textContent = sentence;
  }
}

/** The answer as a text, as the verb gives it. */
function textOf({ answer, predictions }) {
  if (!answer) return "";
  if (answer.tags) return answer.spans?.length ? answer.spans.map((span) => `${span.text} (${span.label})`).join(", ") : "";
  if (answer.label !== undefined) return answer.label;
  if (answer.value !== undefined) return number(answer.value);
  if (answer.text !== undefined) return answer.text;
  if (!answer.perplexity) return "";
  const tokens = predictions.slice(0, -1).reduce((sum, one) => sum + Math.log(one.probability), 0);
  const end = answer.log_probability - tokens; // a score counts the end of a text, if the model has learned to end
  const parts = predictions.some((one) => one.direction) || Math.abs(end) < 1e-3 ? "" : ` (the tokens ${number(tokens)}, the end of the text ${number(end)})`;
  return `log P = ${number(answer.log_probability)}${parts}, perplexity ${number(answer.perplexity)}`;
}

function headingFor({ task, answer, request, predictions }) {
  if (!predictions.length) return "Answer";
  const headings = {
    translation: request.target === undefined ? "Translation" : "Target, as given: how probable each token is",
    tagging: "Tags",
    classification: "Label",
    "masked-language-model": "Filled in",
    "language-model": answer?.text === undefined ? "How probable each token is after those before it" : "Continuation",
    "bidirectional-language-model": "How probable each token is after those before it (→) and before those after it (←)",
  };
  return headings[task] ?? "Predictions";
}

/** Whether a prediction is no token of the text, but what the model expects after it. */
function isBeyond({ task, answer, predictions }, position) {
  return task === "language-model" && answer?.text === undefined && position === predictions.length - 1;
}

/** A small line over a prediction: the word that a tag is for, the direction of reading, or that it follows the text. */
function above(trace, { at, direction }, position) {
  if (isBeyond(trace, position)) return h("small", {}, "and then?");
  if (trace.task === "tagging" && at) {
    const side = sideOf(trace, at[0]);
    return h("small", { dir: "auto" }, side.words?.[side.tokens[at[1]].word]?.text ?? label(side.tokens[at[1]]));
  }
  return direction ? h("small", {}, direction === "forward" ? "→" : "←") : null;
}

/** What a prediction is for, by the token whose state is read. */
function placeOf(trace, { at, direction }) {
  if (!at) return "";
  const side = sideOf(trace, at[0]);
  const token = side.tokens[at[1]];
  if (trace.task === "tagging") return `for the tag of “${side.words?.[token.word]?.text ?? label(token)}”`;
  if (trace.task === "masked-language-model") return `for token ${at[1]} (${label(token)})`;
  if (direction === "backward") return token.special ? "for the last token" : `for what stands before “${label(token)}”`;
  return token.special && at[1] === 0 ? "for the first token" : `for what follows “${label(token)}”`;
}

function explain(prediction, position) {
  return [
    h("strong", { dir: "auto" }, label({ text: prediction.label })),
    h("div", {}, `prediction ${position} · id ${prediction.id}`),
    prediction.probability === null ? null : h("div", {}, `probability ${weight(prediction.probability)}`),
  ].filter(Boolean);
}

register(Answer);
