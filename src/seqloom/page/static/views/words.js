// Words in context: one word in many sentences, its vectors after each layer, its neighbours, and its static vector beside.
import { h, put } from "seqloom/dom";
import { keepFocus } from "seqloom/focus";
import { weight } from "seqloom/numbers";
import { groupColours, likenessChart, planeOf } from "seqloom/plane";
import { shown } from "seqloom/predictions";
import { tip } from "seqloom/tooltip";
import { View, register } from "seqloom/view";

const NEAREST = 6; // other occurrences that are listed

class Words extends View {
  static view = "words";
  static label = "Words";
  static about = "One word in many sentences. Its static vector is the same in all of them; after each layer, its vector depends on the sentence around it. The plane shows the first two principal components (PCA) of the vectors, scaled to length one; planes of different layers are turned to fit each other, on one scale.";
  static needsTrace = false;
  #asked = null;
  #found = null;
  #figures = [];

  figures() {
    return this.#figures;
  }

  async draw(alive) {
    const word = this.state["words.word"] ?? "";
    const given = this.state["words.texts"] ?? "";
    const asked = JSON.stringify([word, given]);
    this.#figures = [];
    const again = keepFocus(this);
    if (this.#asked !== asked) {
      const result = h("section", { id: "words-result" }, h("p", { class: "waiting" }, "Reading sentences…"));
      put(this, this.#form(word, given), result);
      const { texts, groups } = split(given);
      const found = await this.#ask(word, texts, result, alive);
      if (!alive() || !found) return;
      this.#asked = asked;
      this.#found = { ...found, groups: texts.length ? found.occurrences.map((one) => groups[one.text]) : found.occurrences.map(() => 0) };
    }
    const text = given || this.#found.texts.join("\n");
    put(this, this.#form(this.#found.word, text), this.#result(this.#found));
    again();
  }

  /** The answer, or null where the server refuses: its sentence then stands below the form. */
  async #ask(word, texts, section, alive) {
    try {
      return await this.source.post("/words", { word, texts });
    } catch (error) {
      if (error.status === undefined) throw error;
      if (alive()) put(section, h("p", { class: "fault", role: "alert" }, error.message));
      return null;
    }
  }

  #form(word, text) {
    const field = h("input", { id: "words-word", value: word, dir: "auto", autocomplete: "off", spellcheck: "false" });
    const area = h("textarea", { id: "words-texts", rows: 7, dir: "auto", spellcheck: "false" }, text);
    const ask = (texts) => this.set({ "words.word": field.value.trim() || null, "words.texts": texts || null, "words.at": null });
    return h("form", { class: "words-form", onsubmit: (event) => { event.preventDefault(); ask(area.value.trim() === text.trim() && field.value.trim() !== word ? "" : area.value.trim()); } },
      h("div", { class: "asking" }, h("label", {}, h("span", {}, "Word"), field),
        h("button", { type: "submit", id: "words-compare" }, "Compare"), h("button", { type: "button", id: "words-own", onclick: () => ask("") }, "Use sentences of the model's own data")),
      h("label", { class: "wide" }, h("span", {}, "Sentences, one a line; an empty line begins another group, with another colour"), area));
  }

  #result(found) {
    const { layers, occurrences } = found;
    const layer = Math.min(Math.max(Number(this.state["words.layer"] ?? layers.length - 1), 0), layers.length - 1);
    const at = Math.min(Number(this.state["words.at"] ?? 0), occurrences.length - 1);
    const width = Math.min(560, Math.max(300, this.clientWidth));
    const pick = (index) => this.set({ "words.at": index || null }, { replace: true });
    const go = (index) => this.set({ "words.layer": index === layers.length - 1 ? null : index }, { replace: true });
    if (found.plane?.width !== width) {
      const { svg, show } = planeOf(layers, found.groups, { width, height: Math.round(0.72 * width), pick: (index) => pick(index), tell: (element, index) => tip(element, () => this.#sentence(found, index)) });
      found.plane = { width, svg, show };
    }
    found.plane.show(layer, at);
    const slider = h("input", { type: "range", id: "words-layer", min: 0, max: layers.length - 1, step: 1, value: layer, "aria-label": "layer", "aria-valuetext": layers[layer].name,
      oninput: (event) => { found.plane.show(Number(event.target.value), at); name.textContent = layers[event.target.value].name; }, onchange: (event) => go(Number(event.target.value)) });
    const name = h("output", { for: "words-layer" }, layers[layer].name);
    this.#figures = [
      { name: `${found.word} ${layers[layer].name}`, svg: found.plane.svg, table: { columns: ["occurrence", "sentence", "layer", "x", "y"], rows: layers.flatMap((one) => one.points.map(([x, y], index) => [index + 1, found.texts[occurrences[index].text], one.name, x, y])) } },
    ];
    const chart = likenessChart(layers, layer, { width, height: 170, pick: go });
    this.#figures.push({ name: `${found.word} likeness`, svg: chart, table: { columns: ["layer", "with itself", "with other words"], rows: layers.map((one) => [one.name, one.self_similarity, one.to_others]) } });
    return h("section", { id: "words-result", class: "beside" },
      h("div", {}, h("h2", {}, found.word, " in the plane"), found.plane.svg, h("div", { class: "controls slider" }, h("label", {}, "Layer", slider, name)),
        h("h3", {}, "Mean cosine after each layer"), chart),
      h("div", {}, found.notes.map((note) => h("p", { class: "note" }, note)), this.#sentences(found, at, pick), this.#near(found, layer, at)));
  }

  #sentence(found, index) {
    const { text, start, end } = found.occurrences[index];
    const whole = found.texts[text];
    return [h("span", { dir: "auto" }, whole.slice(0, start), h("mark", {}, whole.slice(start, end)), whole.slice(end))];
  }

  #sentences(found, at, pick) {
    const buttons = found.occurrences.map((_, index) => h("li", {}, h("button", { type: "button", class: "sentence quiet", data: { occurrence: index }, "aria-pressed": String(index === at), onclick: () => pick(index) },
      numbered(index, found.groups[index]), this.#sentence(found, index))));
    return [h("h2", {}, "Sentences"), found.origin ? h("p", { class: "method" }, found.origin) : null, h("ol", { class: "sentences" }, buttons)];
  }

  /** What is nearest to the chosen occurrence: tokens by the static vector; after the layer, itself elsewhere and other words. */
  #near(found, layer, at) {
    const { name, cosines, neighbours } = found.layers[layer];
    const place = (text) => (text === null || text === undefined ? "" : `“${clip(found.texts[text])}”`);
    const list = (id, title, rows) => h("div", { class: "near", data: { near: id } }, h("h3", {}, title),
      rows.length ? h("table", {}, h("tbody", {}, rows.map(([first, cosine, where]) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, first), h("td", { class: "number" }, weight(cosine).replace("-", "−")), h("td", { class: "where" }, where))))) : h("p", { class: "method" }, "none"));
    const words = (rows) => rows.map((one) => [shown(one.word), one.cosine, place(one.text)]);
    const again = cosines[at].map((cosine, index) => [numbered(index, found.groups[index]), cosine, place(found.occurrences[index].text)])
      .filter((_, index) => index !== at).sort((one, other) => other[1] - one[1]).slice(0, NEAREST);
    const still = found.layers[0].name === "static" ? list("static", "static vector: tokens of the vocabulary", words(found.layers[0].neighbours[at])) : null;
    return [h("h2", {}, `Nearest to occurrence ${at + 1}, by cosine`), h("div", { class: "nears" }, still,
      name === "static" ? null : [list("others", `${name}: other words of the sentences`, words(neighbours[at])), list("occurrences", `${name}: the word in other sentences`, again)])];
  }
}

function numbered(index, group) {
  const [ground, ink] = groupColours(group);
  return h("i", { class: "numbered", style: { "background-color": ground, color: ink } }, String(index + 1));
}

function clip(text) {
  const letters = [...text];
  return letters.length > 44 ? `${letters.slice(0, 43).join("")}…` : text;
}

/** The lines of a text, and the group that each belongs to: empty lines separate groups. */
function split(text) {
  const texts = [];
  const groups = [];
  let group = 0;
  for (const line of text.split("\n")) {
    if (line.trim()) {
      texts.push(line.trim());
      groups.push(group);
    } else if (texts.length && groups.at(-1) === group) group += 1;
  }
  return { texts, groups };
}

register(Words);
