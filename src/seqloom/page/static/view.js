// What a view is. The contract between the shell (app.js) and the files of views/:
//
// A view is a custom element: a class that extends View, registered by `register(Class)` in a file of its own under
// views/, which app.js imports. The shell makes one element of it, when its tab is first opened, and keeps it.
//
//   static view    its name: in the address (#view=why), in /model's and a trace's "views", and as element <seq-why>
//   static label   the word on its tab
//   static about   one or two plain sentences above it: what one sees; aboutDecoders: what is said of decoders only
//   static hints   by task: what to do where there is nothing to see
//   static needsTrace = false   for a view that shows something without a trace (Runs)
//
//   async draw(alive)    called when the view is shown and the trace, the state or the theme is another one than at its
//                        last call. Read this.model, this.trace, this.state, this.source, and fill the element
//                        (put(this, …)). After each await: `if (!alive()) return;`, because a later call took over.
//                        An exception becomes a sentence in the view: let errors of the source pass.
//   figures()            what Export offers at this moment: [{name, svg | canvas, table: {columns, rows} | async () => …}].
//
// What it is given:
//   this.model    GET /model      this.trace   the TraceMeta, or null      this.source   get / post / tensors (source.js)
//   this.state    the address as {key: string}. Shared by views: position (index into trace.predictions), site, stack,
//                 row, column (token indices), norm ("1": norms instead of raw weights), words ("1": words instead of
//                 pieces), special ("0": special tokens left out). A key that only one view reads begins with its name: "why.method".
//   this.set({key: value})            changes the address and draws again; null removes a key. Typing or dragging: {replace: true}
//   this.app.go({view: "mixing", site})   the same, and another tab
//   this.app.ask({text, …, changes})      another request: a new trace is made, and everything is drawn again
//   this.app.adopt(meta)                  a TraceMeta that a view got itself (POST /trace/x/change) becomes the trace
//
// Helpers: dom.js (h, s, put, walk, breathe), numbers.js (weight, percent, number), palette.js (shade, CATEGORIES),
// tooltip.js (tip), tokens.js (tokenRow, label), matrix.js (maps on a canvas), exporting.js.
// No task of more than 200 ms on the main thread: draw in pieces with `await breathe()` between them.
// Every place that a test or a reader may want has a stable id or data- attribute.
import { h, put } from "seqloom/dom";

export const views = new Map();

/** Makes the class known to the shell, in the order of calls. */
export function register(Class) {
  customElements.define(`seq-${Class.view}`, Class);
  views.set(Class.view, Class);
}

/** A selector that finds an element again after its view was drawn anew: by its id, or by its data within an id. */
function placeOf(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const data = Object.entries(element.dataset).filter(([key]) => key !== "share").map(([key, value]) => `[data-${key}="${CSS.escape(value)}"]`).join("");
  const around = element.closest("[id]");
  return data ? `${around ? `#${CSS.escape(around.id)} ` : ""}${element.localName}${data}` : null;
}

export class View extends HTMLElement {
  static needsTrace = true;
  #turn = 0;
  #shown = null;
  #parts = new Map();

  get model() { return this.app.model; }
  get trace() { return this.app.trace; }
  get state() { return this.app.state; }
  get source() { return this.app.source; }

  set(changes, options) { this.app.go(changes, options); }

  figures() { return []; }

  async draw() { put(this, this.empty("This view is not there yet.")); }

  /** An element that is built again only when `key` is another one than at the last call, so that focus and scrolling stay. */
  part(name, key, build) {
    const known = this.#parts.get(name);
    if (known?.key === key) return known.element;
    const element = build();
    this.#parts.set(name, { key, element });
    return element;
  }

  /** A calm sentence where there is nothing to show. */
  empty(...sentences) {
    return h("div", { class: "empty" }, sentences.map((sentence) => h("p", {}, sentence)));
  }

  /** Called by the shell: draws, unless nothing has changed, and turns an error into a sentence. */
  async show(version) {
    if (this.#shown === version) return;
    this.#shown = version;
    const turn = ++this.#turn;
    const reason = this.app.reasonAgainst(this.constructor);
    if (reason) {
      put(this, this.empty(reason));
      return;
    }
    const focused = this.contains(document.activeElement) ? placeOf(document.activeElement) : null;
    try {
      this.setAttribute("aria-busy", "true");
      await this.draw(() => turn === this.#turn && this.isConnected);
      if (focused && document.activeElement === document.body) this.querySelector(focused)?.focus();
    } catch (error) {
      if (turn !== this.#turn || error.name === "AbortError") return;
      if (!(error instanceof Error) || error.status === undefined) console.error(error);
      put(this, h("p", { class: "fault", role: "alert" }, error.message));
    } finally {
      if (turn === this.#turn) this.removeAttribute("aria-busy");
    }
  }
}
