// Change: what would happen if something were otherwise. A word is masked or swapped, a part is switched off or scaled.
import { fillRow, h, put, segments, walk } from "seqloom/dom";
import { answerDifference, predictionTable } from "seqloom/difference";
import { directionOf } from "seqloom/direction";
import { keepFocus } from "seqloom/focus";
import { changeName } from "seqloom/names";
import { number } from "seqloom/numbers";
import { partsTable } from "seqloom/parts";
import { lineFor, positionOf } from "seqloom/predictions";
import { sideOf } from "seqloom/tokens";
import { View, register } from "seqloom/view";

const WAYS = { zero: "switch off", mean: "replace by its mean", scale: "scale by" };
const SHOWN = 40; // predictions; all of them are one click away

class Change extends View {
  static view = "change";
  static label = "Change";
  static about = "Mask, swap or leave out a word, switch off or scale a part of the network, and see what the model answers then. Changes stay in force in every view, and in the address, until they are undone; those of words end with their text.";
  #figures = [];
  #all = false;

  async draw(alive) {
    const { trace } = this;
    this.#figures = [];
    const effect = h("section", { id: "change-effect", "aria-live": "polite" });
    const parts = h("section", { id: "change-parts" });
    const again = keepFocus(this);
    put(this, this.#made(), h("div", { class: "cause" }, effect, this.#words(), parts));
    if (this.source.saved) put(parts, h("p", { class: "method" }, "This is a saved page. To change something, open the model itself: seqloom explore RUN."));
    else this.#parts(parts, new Map());
    if (!trace.changes.length) {
      put(effect, h("p", { class: "method" }, "Nothing is changed yet: pick a word, or a part of the network."));
      again();
      return;
    }
    put(effect, h("p", { class: "waiting" }, "Comparing…"));
    again();
    const { changes, ...request } = trace.request;
    const base = await this.source.post("/trace", request);
    const found = await this.source.get(`/trace/${trace.id}/compare`, { with: base.id });
    if (!alive()) return;
    this.#effect(effect, found, base);
    this.#parts(parts, new Map(found.sites.map(({ site, change }) => [site, change])));
    again();
  }

  figures() {
    return this.#figures;
  }

  /** Asks for the same trace with other changes; everything on the page follows. */
  #apply(changes) {
    const { position } = this.state;
    return this.app.ask({ ...this.trace.request, changes, ...(position === undefined ? {} : { position }), "change.word": null });
  }

  #made() {
    const { changes } = this.trace;
    if (!changes.length) return null;
    const saved = this.source.saved;
    return h("div", { id: "changes", class: "controls", role: "group", "aria-label": "Changes in force" },
      changes.map((change, index) => h("span", { class: "made" }, changeName(change),
        saved ? null : h("button", { type: "button", class: "quiet", "aria-label": `Undo: ${changeName(change)}`, data: { undo: index }, onclick: () => this.#apply(changes.filter((_, at) => at !== index)) }, "×"))),
      saved ? null : h("button", { type: "button", id: "undo", onclick: () => this.#apply(changes.slice(0, -1)) }, "Undo the last"),
      saved || changes.length < 2 ? null : h("button", { type: "button", id: "undo-all", onclick: () => this.#apply([]) }, "Undo all"));
  }

  // ---- words ----

  #words() {
    if (this.source.saved) return null;
    const sides = this.trace.sides.filter((side) => side.name !== "target" || this.trace.request.target !== undefined);
    return h("section", { id: "change-words" }, h("h2", {}, "A word"), sides.map((side) => this.#side(side, sides.length > 1)));
  }

  #side(side, named) {
    const [name, at] = (this.state["change.word"] ?? "").split(":");
    const chosen = name === side.name && at !== undefined ? Number(at) : null;
    const changed = new Set(this.trace.changes.filter((change) => change.side === side.name).map((change) => change.index));
    const row = h("div", { id: `words-${side.name}`, class: "tokens", dir: directionOf(side.text), role: "group", "aria-label": `words of the ${side.name}` });
    row.filled = fillRow(row, side.words.length, (index) => h("button", {
      type: "button", class: changed.has(index) ? "token changed" : "token", dir: "auto", data: { side: side.name, word: index }, tabindex: index === (chosen ?? 0) ? 0 : -1, "aria-pressed": String(index === chosen),
    }, side.words[index].text));
    row.addEventListener("click", (event) => {
      const word = event.target.closest(".token")?.dataset.word;
      if (word !== undefined) this.set({ "change.word": Number(word) === chosen ? null : `${side.name}:${word}` }, { replace: true });
    });
    walk(row, [], { selector: ".token" });
    return [named ? h("h3", {}, side.name) : null, row, side.words[chosen] ? this.#editor(side, chosen, side.words[chosen].text) : null];
  }

  #editor(side, index, word) {
    const others = this.trace.changes.filter((change) => !(change.side === side.name && change.index === index));
    const field = h("input", { id: "swap-text", dir: "auto", placeholder: "another word", autocomplete: "off", spellcheck: "false", "aria-label": `Instead of ${word}` });
    const swap = (event) => {
      event.preventDefault();
      if (field.value.trim()) this.#apply([...others, { kind: "swap", side: side.name, index, text: field.value.trim() }]);
    };
    return h("form", { class: "controls editor", onsubmit: swap }, h("span", {}, "Instead of ", h("strong", { dir: "auto" }, word)),
      h("button", { type: "button", id: "mask", onclick: () => this.#apply([...others, { kind: "mask", side: side.name, index }]) }, "mask it"),
      h("button", { type: "button", id: "leave-out", onclick: () => this.#apply([...others, { kind: "swap", side: side.name, index, text: "" }]) }, "leave it out"), h("span", {}, "or"), field, h("button", { type: "submit", id: "swap" }, "swap"));
  }

  // ---- parts ----

  #parts(section, changed) {
    const way = this.state["change.by"] in WAYS ? this.state["change.by"] : "zero";
    const factor = Number(this.state["change.factor"] ?? 0.5);
    const made = new Map(this.trace.changes.filter((change) => change.site).map((change) => [change.site, change]));
    const largest = Math.max(0, ...changed.values());
    const range = h("input", { type: "range", id: "change-factor", min: 0, max: 2, step: 0.1, value: factor, "aria-label": "factor", disabled: way !== "scale",
      onchange: (event) => this.set({ "change.factor": event.target.value }, { replace: true }), oninput: (event) => { value.textContent = `× ${event.target.value}`; } });
    const value = h("output", { for: "change-factor" }, `× ${factor}`);
    const pick = (site) => {
      const others = this.trace.changes.filter((change) => change.site !== site);
      if (made.has(site)) this.#apply(others);
      else this.#apply([...others, way === "scale" ? { kind: "scale", site, factor } : { kind: "ablate", site, by: way }]);
    };
    const mark = (site) => {
      const change = made.get(site);
      return !change ? null : change.kind === "scale" ? `×${change.factor}` : change.by === "mean" ? "mean" : "off";
    };
    put(section, h("h2", {}, "A part of the network"),
      h("div", { class: "controls" }, segments("change-by", "What a click does", Object.entries(WAYS), way, (value) => this.set({ "change.by": value === "zero" ? null : value }, { replace: true })), way === "scale" ? [range, value] : null),
      h("p", { class: "method" }, "A click changes a part; a second click undoes it.", largest ? " The stronger the colour of a part, the more its output differs from before." : ""),
      h("div", { class: "stacks" }, this.trace.stacks.map((stack) => partsTable(stack, {
        pressed: mark, pick, amount: (site) => (largest && changed.has(site) ? changed.get(site) / largest : null),
        about: (site) => [...(changed.has(site) ? [`its output differs by ${number(changed.get(site))}`] : [])],
      }))));
  }

  // ---- before and after ----

  #effect(section, found, base) {
    const rows = found.predictions.map((prediction, index) => ({ index, ...prediction, label: lineFor(base, base.predictions[index]) }));
    const size = (row) => (row.after === null ? Infinity : Math.abs(row.after - row.before));
    const few = this.#all ? rows : [...rows].sort((one, other) => size(other) - size(one)).slice(0, SHOWN).sort((one, other) => one.index - other.index);
    put(section, h("h2", {}, "Before and after"), answerDifference(found.answer), h("p", { class: "method" }, "How probable each prediction of the first answer is, before and after:"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Probabilities before and after" }, predictionTable(few, { chosen: positionOf(this), quantity: this.trace.predictions[0]?.probability === null, pick: (index) => this.app.go({ view: "why", position: index }) })),
      rows.length > few.length ? h("p", { class: "method" }, `These are the ${few.length} predictions that changed most, of ${rows.length}. `, h("button", { type: "button", onclick: () => { this.#all = true; this.#effect(section, found, base); } }, "show all")) : null);
    this.#figures = [{ name: "before and after", table: { columns: ["prediction", "label", "before", "after"], rows: rows.map((row) => [row.index, row.label, row.before, row.after]) } }];
  }
}

register(Change);
