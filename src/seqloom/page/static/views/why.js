// Why: what a prediction rests on. Attribution over the input, the sum of the components, and what each layer would have said.
import { h, put, segments, tick } from "seqloom/dom";
import { attributionTable, attributionText, balance, sumOf } from "seqloom/attribution";
import { keepFocus } from "seqloom/focus";
import { layerTable } from "seqloom/layers";
import { contrast, positionOf, predictionRow, textOf } from "seqloom/predictions";
import { View, register } from "seqloom/view";
import { byLayer, bySize, waterfall } from "seqloom/waterfall";

const METHODS = {
  conserved: ["conserved", "Everything that multiplies is frozen (attention weights, norms, gates). What is left is linear, so the logit is a sum over tokens and biases (Ali et al. 2022; Arras et al. 2019)."],
  gradient: ["gradient × input", "How fast the logit changes with each token's vector, times that vector: a first-order estimate."],
  integrated: ["integrated gradients", "The gradient, averaged on the straight way from nothing to the input, times the input (Sundararajan et al. 2017)."],
  occlusion: ["occlusion", "Each token's vector is set to zero in turn; its share is how much the logit falls (Zeiler and Fergus 2014)."],
};
const MANY = 40; // components; with more of them, layers are shown first

class Why extends View {
  static view = "why";
  static label = "Why";
  static about = "What a prediction rests on: which tokens of the input, which parts of the network, and after which layer it was settled. Blue speaks for it, orange against it.";
  #figures = [];

  async draw(alive) {
    const { trace } = this;
    this.#figures = [];
    if (!trace.predictions.length) {
      put(this, this.empty("The model predicts nothing here, so there is nothing to explain."));
      return;
    }
    const position = positionOf(this);
    const prediction = trace.predictions[position];
    const { token, against, controls } = contrast(this, prediction);
    const question = this.#question(prediction, token, against);
    const wanted = { position, token: token === prediction.id ? null : token, against };
    const parts = h("section", { id: "why-contributions" }, h("h2", {}, "Parts of the network"));
    const layers = h("section", { id: "why-layers" }, h("h2", {}, "After each layer"));
    const input = h("section", { id: "why-attribution" }, h("h2", {}, "Tokens of the input"), this.#methods());
    const again = keepFocus(this);
    put(this, predictionRow(this), h("div", { class: "controls" }, controls), input, h("div", { class: "beside" }, parts, layers));
    again();
    await Promise.all([
      this.#fill(input, alive, () => this.#input(wanted, question)),
      this.#fill(parts, alive, () => this.#parts(wanted, question, parts.clientWidth)),
      this.#fill(layers, alive, () => this.#layers(position, [token, against])),
    ]);
    if (!alive()) return;
    again();
    await Promise.all([...this.querySelectorAll(".tokens, .token-shares")].map((row) => row.filled));
  }

  figures() {
    return this.#figures;
  }

  /** Fills the rest of a section. Each can fail by itself; the sentence then stands in its place. */
  async #fill(section, alive, work) {
    const rest = h("div", {}, h("p", { class: "waiting" }, "Computing…"));
    section.append(rest);
    try {
      const found = await work();
      if (alive()) put(rest, found);
    } catch (error) {
      if (!alive()) return;
      if (error.status === undefined) console.error(error);
      put(rest, h("p", { class: "fault", role: "alert" }, error.message));
    }
  }

  #question(prediction, token, against) {
    const name = (id) => `“${textOf(this.trace, prediction, id)}”`;
    return against === null ? `the logit of ${name(token)}` : `the logit of ${name(token)} minus that of ${name(against)}`;
  }

  get #method() {
    return this.state["why.method"] in METHODS ? this.state["why.method"] : "conserved";
  }

  #methods() {
    const options = Object.entries(METHODS).map(([key, [name]]) => h("option", { value: key, selected: key === this.#method }, name));
    return [
      h("div", { class: "controls" },
        h("label", {}, "Method", h("select", { id: "why-method", onchange: (event) => this.set({ "why.method": event.target.value === "conserved" ? null : event.target.value }) }, options)),
        tick("why-words", "whole words", this.state.words === "1", (on) => this.set({ words: on ? 1 : null }))),
      h("p", { class: "method" }, METHODS[this.#method][1]),
    ];
  }

  async #input(wanted, question) {
    const method = this.#method;
    const found = await this.source.get(`/trace/${this.trace.id}/attribution`, { ...wanted, method: method === "conserved" ? null : method });
    this.#figures.push({ name: `attribution ${method}`, table: attributionTable(this.trace, found) });
    return [attributionText(this.trace, found, { words: this.state.words === "1" }), balance(found, question), found.note ? h("p", { class: "method" }, found.note) : null];
  }

  async #parts(wanted, question, width) {
    const found = await this.source.get(`/trace/${this.trace.id}/contributions`, wanted);
    const detail = this.state["why.detail"] ?? (found.items.length > MANY ? "layers" : "components");
    const order = this.state["why.order"] ?? "network";
    const grouped = detail === "layers" ? byLayer(found.items) : found.items;
    const items = order === "size" ? bySize(grouped) : grouped;
    const sites = new Set(this.trace.stacks.flatMap((stack) => stack.layers.flatMap((layer) => layer.sites)));
    const drawing = waterfall(items, {
      ending: "together", width: Math.min(Math.max(width, 320), 760), label: `${question} as a sum of ${items.length} parts`,
      opens: (site) => sites.has(site), open: (site) => this.app.go({ view: "mixing", site }),
    });
    this.#figures.push({ name: "contributions", svg: drawing, table: { columns: ["site", "name", "contribution"], rows: found.items.map((item) => [item.site, item.name, item.value]) } });
    const choices = h("div", { class: "controls" },
      segments("why-detail", "How fine the parts are", [["components", "Heads and sublayers"], ["layers", "Layers"]], detail, (value) => this.set({ "why.detail": value })),
      segments("why-order", "Order of the parts", [["network", "In the order of the network"], ["size", "Largest first"]], order, (value) => this.set({ "why.order": value === "network" ? null : value })));
    return [choices, drawing, sumOf(found, question)];
  }

  async #layers(position, marked) {
    const found = await this.source.get(`/trace/${this.trace.id}/lens`, { position });
    this.#figures.push({ name: "after each layer", table: { columns: ["layer", "rank", "token", "probability"],
      rows: found.layers.flatMap((layer) => layer.top.map((one, rank) => [layer.name, rank + 1, one.text, one.probability])) } });
    return [h("p", { class: "method" }, "What the model would say if it stopped there: the output layer, and the norm before it if there is one, on the state after each layer (the logit lens, nostalgebraist 2020)."), layerTable(found.layers, marked)];
  }
}

register(Why);
