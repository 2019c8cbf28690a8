// <seq-app>: the shell. It asks the source for the model and the trace, keeps the state in the address, and shows one
// view at a time. What a view is given and has to do is said at the top of view.js.
import { h, put, walk } from "seqloom/dom";
import { download, waysOf } from "seqloom/exporting";
import { changeName } from "seqloom/names";
import { openSource } from "seqloom/source";
import { readState, requestOf, REQUEST, writeState } from "seqloom/state";
import { hideTip } from "seqloom/tooltip";
import { views } from "seqloom/view";
import "seqloom/views/answer";
import "seqloom/views/mixing";
import "seqloom/views/why";
import "seqloom/views/search";
import "seqloom/views/change";
import "seqloom/views/words";
import "seqloom/views/runs";

/** A sentence with its full stop. */
function ended(sentence) {
  return /[.!?…]$/.test(sentence) ? sentence : `${sentence}.`;
}

class App extends HTMLElement {
  model = null;
  trace = null;
  source = null;
  state = {};
  #asked = null; // the request of `trace`, as JSON
  #fault = null; // the sentence of a request that failed
  #version = 0;
  #waiting = 0;
  #elements = new Map();

  async connectedCallback() {
    this.state = readState();
    this.#frame();
    addEventListener("popstate", () => { this.state = readState(); this.#follow(); });
    addEventListener("keydown", (event) => this.#key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#theme(this.state.theme));
    this.#theme(this.state.theme);
    try {
      this.source = await openSource(this.state.token);
      this.state = { ...this.source.state, ...this.state };
      this.model = await this.#busy(this.source.get("/model"));
    } catch (error) {
      this.#fault = error.message;
      this.#notes();
      return;
    }
    await this.#follow();
  }

  // ---- what views call ----

  /** Changes the state and draws again. null removes a key. */
  go(changes, { replace = false } = {}) {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === undefined) delete this.state[key];
      else this.state[key] = REQUEST.includes(key) ? value : String(value);
    }
    writeState(this.state, { replace });
    return this.#follow();
  }

  /** Traces another request. What belonged to the old one (a position, a cell) is forgotten. */
  ask(request) {
    const gone = Object.fromEntries([...REQUEST, "position", "row", "column"].map((key) => [key, null]));
    return this.go({ ...gone, ...request });
  }

  /** Takes over a trace that a view was given, such as the answer of POST /trace/x/change. */
  adopt(trace) {
    this.trace = trace;
    this.#asked = JSON.stringify(this.#ordered(trace.request));
    return this.go({ ...Object.fromEntries(REQUEST.map((key) => [key, null])), ...trace.request });
  }

  /** Why this view has nothing to show, or null. */
  reasonAgainst(View) {
    const said = [this.model.views?.[View.view], this.trace?.views?.[View.view]].find((one) => typeof one === "string");
    if (said) return `${said}${(!this.source.saved && View.hints?.[this.model.task]) || ""}`;
    if (!View.needsTrace || this.trace) return null;
    return this.#fault ? "There is nothing to show, because the text could not be read." : "Type a text above, and press Enter.";
  }

  // ---- the frame ----

  #frame() {
    this.tabs = h("div", { id: "tabs", role: "tablist", "aria-label": "Views" });
    this.panel = h("main", { id: "panel", tabindex: "-1" });
    this.about = h("div");
    this.notes = h("aside", { id: "notes", "aria-label": "Notes", "aria-live": "polite" });
    this.form = h("form", { id: "request", onsubmit: (event) => { event.preventDefault(); this.#submit(); } });
    this.heading = h("p", { id: "model" });
    this.menu = h("details", { id: "export", class: "menu", ontoggle: () => this.#exports() }, h("summary", {}, "Export"), h("div", { class: "sheet" }));
    const theme = h("button", { id: "theme", type: "button", class: "quiet", title: "Light or dark", onclick: () => this.go({ theme: this.#isDark() ? "light" : "dark" }) }, "◐");
    theme.setAttribute("aria-label", "Light or dark");
    put(
      this,
      h("a", { class: "skip", href: "#panel", onclick: (event) => { event.preventDefault(); this.panel.focus(); } }, "Skip to the view"),
      h("header", {}, h("div", { class: "top" }, h("h1", {}, "Seqloom"), this.heading, theme), this.form, h("div", { class: "tabbar" }, this.tabs, this.menu)),
      this.notes,
      this.panel,
    );
    const items = [...views.values()].map((View) =>
      h("button", {
        type: "button", role: "tab", id: `tab-${View.view}`, "aria-controls": `view-${View.view}`, data: { view: View.view },
        onclick: () => this.go({ view: View.view }), onfocus: (event) => event.target.scrollIntoView?.({ block: "nearest", inline: "nearest" }),
      }, View.label));
    put(this.tabs, items);
    walk(this.tabs, items);
  }

  #key(event) {
    if (event.key !== "Escape") return;
    hideTip();
    this.menu.open = false;
  }

  #isDark() {
    return document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  #theme(theme) {
    const before = this.drawnDark;
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    this.drawnDark = this.#isDark();
    if (before !== undefined && before !== this.drawnDark && this.model) this.#draw();
  }

  /** The fields of a request: one text, and for some tasks a second one. */
  #fields() {
    const { task } = this.model;
    const request = (this.#fault ? requestOf(this.state) : this.trace?.request) ?? requestOf(this.state) ?? this.model.example ?? {};
    const key = JSON.stringify(request);
    if (this.form.dataset.request === key) return; // what is being typed stays
    this.form.dataset.request = key;
    const translation = task === "translation";
    const second = translation ? "target" : this.model.pair ? "second" : null;
    const field = (name, words, value, hint) =>
      h("label", {}, h("span", {}, words), h("textarea", { id: `field-${name}`, name, rows: 1, dir: "auto", placeholder: hint, spellcheck: "false",
        onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.#submit(); } } }, value ?? ""));
    put(
      this.form,
      field("text", translation ? "Source" : this.model.pair ? "First" : "Text", request.text, "Type a text and press Enter"),
      second ? field(second, translation ? "Target" : "Second", request[second], translation ? "empty: the model's own translation" : "") : null,
      task === "language-model" && !this.source.saved ? h("label", { class: "short" }, h("span", {}, "Continue by"), h("input", { id: "field-length", type: "number", min: 0, max: 500, value: request.search?.max_length ?? 0, title: "tokens" })) : null,
      this.source.saved ? null : h("button", { type: "submit", id: "run" }, "Trace"),
    );
    if (this.source.saved) for (const area of this.form.querySelectorAll("textarea")) area.readOnly = true;
    for (const area of this.form.querySelectorAll("textarea")) {
      const grow = () => { area.style.height = "auto"; area.style.height = `${Math.min(area.scrollHeight + 2, 160)}px`; };
      area.addEventListener("input", grow);
      grow();
    }
  }

  #submit() {
    const request = {};
    for (const area of this.form.querySelectorAll("textarea")) if (area.value !== "" || area.name === "text") request[area.name] = area.value;
    if (!request.text.trim() && this.model.task !== "language-model") { // known without the server, which may be at work
      this.#fault = "The text is blank, so there is nothing to trace.";
      this.#notes();
      return;
    }
    const search = this.trace?.request.search ?? this.state.search ?? {};
    const length = this.form.querySelector("#field-length");
    if (length) request.search = Number(length.value) > 0 ? { ...search, max_length: Number(length.value) } : null;
    else if (Object.keys(search).length && request.target === undefined) request.search = search; // as it was chosen in Search
    const parts = (this.trace?.request.changes ?? this.state.changes ?? []).filter((change) => change.site && change.kind !== "patch");
    this.ask({ ...request, changes: parts }); // what was done to words was done to those of another text
  }

  // ---- following the state ----

  #ordered(request) {
    return request && Object.fromEntries(REQUEST.filter((key) => key in request && !(Array.isArray(request[key]) && !request[key].length)).map((key) => [key, request[key]]));
  }

  async #follow() {
    this.#theme(this.state.theme);
    const request = requestOf(this.state) ?? (this.model.example ? this.#ordered(this.model.example) : null);
    const asked = JSON.stringify(this.#ordered(request));
    if (request && asked !== this.#asked) {
      this.#asked = asked;
      this.#fault = null;
      this.setAttribute("data-state", "loading");
      try {
        const trace = this.source.saved ? await this.source.get("/trace") : await this.#busy(this.source.post("/trace", request));
        if (this.#asked !== asked) return; // a later request took over
        this.trace = trace;
      } catch (error) {
        if (this.#asked !== asked) return;
        this.trace = null;
        this.#fault = error.message;
      }
    }
    await this.#draw();
  }

  async #busy(promise) {
    this.#waiting += 1;
    this.toggleAttribute("aria-busy", true);
    try {
      return await promise;
    } finally {
      this.#waiting -= 1;
      if (!this.#waiting) this.removeAttribute("aria-busy");
    }
  }

  /** What one sees in a view, unless there is nothing to see. */
  #about(View) {
    const decodes = this.trace?.stacks.some((stack) => stack.name === "decoder");
    return View.about && !this.reasonAgainst(View) ? h("p", { class: "about" }, View.about, decodes && View.aboutDecoders ? ` ${View.aboutDecoders}` : "") : null;
  }

  async #draw() {
    hideTip();
    const { name, task, families = [], weights } = this.model;
    document.title = `${name} · Seqloom`;
    put(this.heading, h("strong", {}, name), ` · ${[task, ...families].join(" · ")}${weights ? ` · ${Number(weights).toLocaleString("en")} weights` : ""}`);
    this.#fields();
    this.#notes();
    const wanted = views.has(this.state.view) ? this.state.view : [...views.keys()][0];
    for (const tab of this.tabs.children) {
      const chosen = tab.dataset.view === wanted;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      tab.toggleAttribute("data-empty", Boolean(this.reasonAgainst(views.get(tab.dataset.view))));
    }
    if (!this.#elements.has(wanted)) {
      const element = document.createElement(`seq-${wanted}`);
      element.app = this;
      element.id = `view-${wanted}`;
      element.setAttribute("role", "tabpanel");
      element.setAttribute("aria-labelledby", `tab-${wanted}`);
      this.#elements.set(wanted, element);
    }
    const element = this.#elements.get(wanted);
    const View = views.get(wanted);
    if (this.panel.lastElementChild !== element) put(this.panel, this.about, element);
    put(this.about, this.#about(View));
    this.menu.open = false;
    this.#version += 1;
    await element.show(`${this.#version}`);
    this.setAttribute("data-state", this.#fault ? "fault" : "ready");
    this.setAttribute("data-trace", this.trace?.id ?? "");
  }

  #notes() {
    const sentences = [...(this.model?.notes ?? []), ...(this.trace?.notes ?? [])];
    put(
      this.notes,
      this.#fault ? h("p", { class: "fault", role: "alert" }, ended(this.#fault)) : null,
      sentences.map((sentence) => h("p", { class: "note" }, ended(sentence))),
      this.trace?.changes.length && this.state.view !== "change" ? h("p", { class: "note", id: "in-force" }, `This is not the model as it is: ${this.trace.changes.map(changeName).join("; ")}. `,
        h("button", { type: "button", class: "quiet", onclick: () => this.go({ view: "change" }) }, "Change")) : null,
    );
  }

  // ---- export and save ----

  #exports() {
    if (!this.menu.open) return;
    const element = this.#elements.get(this.panel.lastElementChild.constructor.view);
    const figures = this.trace || !element.constructor.needsTrace ? element.figures() : [];
    const lines = figures.map((figure) =>
      h("div", { class: "row", data: { figure: figure.name } }, h("span", {}, figure.name), waysOf(figure).map(([kind, act]) =>
        h("button", { type: "button", data: { kind }, onclick: () => this.#attempt(act) }, kind))));
    put(
      this.menu.querySelector(".sheet"),
      lines.length ? lines : h("p", {}, "This view has no figure at the moment."),
      this.source.saved || !this.trace ? null : h("div", { class: "row" }, h("span", {}, "this page, as one file"), h("button", { type: "button", id: "save-page", onclick: () => this.#attempt(() => this.#save()) }, "HTML")),
    );
  }

  async #save() {
    const { token, ...state } = this.state;
    download(`${this.model.name.replaceAll("/", "-")}.html`, await this.#busy(this.source.blob(`/trace/${this.trace.id}/page`, { state: new URLSearchParams(Object.entries(state).filter(([key]) => !REQUEST.includes(key))).toString() })));
  }

  async #attempt(act) {
    try {
      await act();
    } catch (error) {
      this.#fault = error.message;
      this.#notes();
    }
  }
}

customElements.define("seq-app", App);
