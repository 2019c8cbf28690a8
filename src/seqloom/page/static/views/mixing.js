// Mixing: how positions read each other, in every layer and head, direction or kernel.
import { arithmetic } from "seqloom/arithmetic";
import { h, put, segments, tick, walk } from "seqloom/dom";
import { mirror } from "seqloom/exporting";
import { keepFocus } from "seqloom/focus";
import { lines, MOST } from "seqloom/lines";
import { axesOf, groupMap, groupsOf, rangeOf, readMap } from "seqloom/maps";
import { contactSheet, matrix, paintThumbnails, tableOf } from "seqloom/matrix";
import { layerName, nameOf } from "seqloom/names";
import { number, weight } from "seqloom/numbers";
import { shade } from "seqloom/palette";
import { hideTip, showTip, tip } from "seqloom/tooltip";
import { View, register } from "seqloom/view";

const SIZE = 96; // rows and columns of a thumbnail
const UNITS = { attention: "head", recurrent: "direction", convolution: "kernel", pool: "pooling" };
const SOURCES = 8; // of a row that are listed

class Mixing extends View {
  static view = "mixing";
  static label = "Mixing";
  static aboutDecoders = "In a decoder, ▸ says what it is about to write.";
  static about = "Every layer lets positions read each other. A row is the position that reads, a column the one that is read; the stronger its colour, the larger the weight.";

  #figures = []; // of one map, of all maps, of the arithmetic
  #all = [];
  #arithmetic = [];

  figures() { return [...this.#figures, ...this.#all, ...this.#arithmetic]; }

  async draw(alive) {
    const { trace, state } = this;
    this.#figures = [];
    const stack = trace.stacks.find((one) => one.name === state.stack) ?? trace.stacks[0];
    if (!stack) {
      put(this, this.empty("Nothing in this model mixes positions."));
      return;
    }
    const sites = stack.layers.flatMap((layer) => layer.sites);
    const site = sites.includes(state.site) ? state.site : sites[0];
    const norm = state.norm === "1" && Boolean(stack.norm);
    const controls = this.part("controls", JSON.stringify([trace.id, stack.name, norm, state.words, state.special, state["mixing.sort"]]), () => this.#controls(stack, norm));
    const key = JSON.stringify([trace.id, stack.name, state.special, state["mixing.sort"], this.app.drawnDark]);
    const overview = this.part("overview", key, () => h("section", { id: "maps", "aria-label": "All maps" }, h("p", { class: "waiting" }, "Reading the maps…")));
    const detail = this.part("detail", trace.id, () => h("section", { id: "map", "aria-label": "One map" }));
    const steps = this.part("steps", trace.id, () => h("section", { id: "arithmetic", "aria-label": "The arithmetic of one weight" }));
    put(this, controls, h("div", { class: "split" }, overview, detail), steps);
    if (overview.dataset.drawn !== key) await this.#overview(overview, stack, alive, key);
    if (!alive()) return;
    for (const thumb of overview.querySelectorAll(".thumb")) thumb.setAttribute("aria-pressed", String(thumb.dataset.site === site));
    await this.#detail(detail, steps, stack, site, norm, alive);
  }

  #controls(stack, norm) {
    const { state } = this;
    const stacks = this.trace.stacks.map((one) => [one.name, one.name[0].toUpperCase() + one.name.slice(1)]);
    const special = this.trace.sides.some((side) => side.tokens.some((token) => token.special));
    const pieces = this.trace.sides.some((side) => groupsOf(side, { words: true }).length < side.tokens.length);
    return h("div", {},
      h("div", { class: "controls" },
        stacks.length > 1 ? segments("stacks", "Part of the model", stacks, stack.name, (value) => this.set({ stack: value, site: null, row: null, column: null })) : null,
        stack.norm ? segments("norm", "What a number is", [["0", "Weights", stack.raw], ["1", "Norms", stack.norm]], norm ? "1" : "0", (value) => this.set({ norm: value === "1" ? 1 : null })) : null,
        pieces ? segments("words", "Pieces or words", [["0", "Pieces"], ["1", "Words"]], state.words === "1" ? "1" : "0", (value) => this.set({ words: value === "1" ? 1 : null })) : null,
        special ? tick("special", "special tokens", state.special !== "0", (on) => this.set({ special: on ? null : 0 })) : null,
        h("label", {}, "order", h("select", { id: "sort", onchange: (event) => this.set({ "mixing.sort": event.target.value || null }) }, h("option", { value: "" }, `by layer and ${UNITS[stack.kind] ?? "map"}`)))),
      h("p", { class: "meaning", id: "meaning" }, norm ? `A number is ${stack.norm}. The small maps show weights.` : `A number is ${stack.raw}.`));
  }

  // ---- all maps ----

  async #overview(section, stack, alive, key) {
    const { trace, source } = this;
    const { grid, metadata } = await source.tensors(`/trace/${trace.id}/grid`, { stack: stack.name, size: SIZE });
    if (!alive()) return;
    const roles = await source.get(`/trace/${trace.id}/roles`, { stack: stack.name }).catch(() => ({ roles: [], about: {} }));
    if (!alive()) return;
    const scores = new Map(roles.roles.map(({ site, ...rest }) => [site, rest]));
    const about = { ...roles.about };
    if (stack.name === "cross") {
      const { heads } = await source.get(`/trace/${trace.id}/alignment`).catch(() => ({ heads: [] }));
      if (!alive()) return;
      for (const { site, share } of heads) if (scores.has(site)) scores.get(site).alignment = share;
      if (heads.length) about.alignment = "weight on the source token that matters most to the prediction";
    }
    this.roles = { scores, about };
    const order = this.#sorting(about);
    const units = Math.max(...stack.layers.map((layer) => layer.sites.length));
    const side = units <= 4 ? 92 : units <= 8 ? 68 : units <= 12 ? 42 : 34;
    const places = new Map(metadata.sites.map((site, index) => [site, index]));
    const canvases = metadata.sites.map(() => h("canvas", { class: "thumbnail" }));
    const thumb = (site, caption) => tip(h("button", { type: "button", class: "thumb", data: { site }, "aria-label": nameOf(stack, site), onclick: () => this.set({ site }) }, canvases[places.get(site)], caption ? h("small", {}, caption) : null),
      () => [h("strong", {}, nameOf(stack, site)), ...Object.entries(scores.get(site) ?? {}).map(([role, value]) => h("div", {}, `${role.replaceAll("_", " ")} ${spell(value)}`))]);
    let body;
    let thumbs;
    if (order) {
      const sorted = [...metadata.sites].sort((a, b) => (scores.get(b)?.[order] ?? -Infinity) - (scores.get(a)?.[order] ?? -Infinity));
      thumbs = sorted.map((site) => thumb(site, `${site.split(".").slice(1).filter((part) => part !== "head" && part !== "cross").join(".")} · ${number(scores.get(site)?.[order])}`));
      body = h("div", { class: "flow" }, thumbs);
      walk(body, thumbs);
    } else {
      thumbs = stack.layers.flatMap((layer) => layer.sites.map((site) => thumb(site)));
      const head = units > 1 ? h("div", { class: "units" }, h("span", {}), stack.layers[0].sites.map((site) => h("span", {}, site.split(".").at(-1)))) : null;
      let at = 0;
      body = h("div", { class: "layers" }, head, stack.layers.map((layer) => h("div", { class: "layer" }, h("span", {}, layerName(layer)), layer.sites.map(() => thumbs[at++]))));
      walk(body, thumbs, { columns: units });
    }
    section.style.setProperty("--thumb", `${side}px`);
    section.style.setProperty("--units", String(units));
    const [rows, columns] = axesOf(trace, stack, {});
    const pooled = rows.length > grid.shape[1] || columns.length > grid.shape[2];
    const hide = this.state.special === "0" && !pooled;
    const keep = hide ? [rows, columns].map((groups) => groups.flatMap((group, index) => (group.special ? [] : [index]))) : null;
    put(section, body, pooled ? h("p", { class: "small" }, `Each pixel here is the largest of several weights; special tokens are always among them. The map beside it has all ${rows.length} × ${columns.length}.`) : null,
      order ? h("p", { class: "small" }, `Largest first: ${about[order]}.`) : null);
    section.dataset.drawn = key;
    this.#all = [{ name: `maps ${stack.name}`, canvas: () => contactSheet(thumbs.map(({ dataset: { site } }) => [canvases[places.get(site)], site]), Math.max(units, 4)), table: { columns: ["site", ...Object.keys(about)], rows: thumbs.map(({ dataset: { site } }) => [site, ...Object.keys(about).map((role) => scores.get(site)?.[role]).map((value) => (typeof value === "object" ? JSON.stringify(value) : value))]) } }];
    await paintThumbnails(canvases, grid, keep, alive);
  }

  /** Fills the choice of orders; gives the role that is chosen, if it is one. */
  #sorting(about) {
    const wanted = this.state["mixing.sort"];
    const select = this.querySelector("#sort");
    for (const role of Object.keys(about).filter((name) => name !== "energy")) if (![...select.options].some((option) => option.value === role)) select.append(h("option", { value: role }, `by ${role.replaceAll("_", " ")}`));
    select.value = wanted in about ? wanted : "";
    return wanted in about ? wanted : null;
  }

  // ---- one map ----

  async #detail(section, steps, stack, site, norm, alive) {
    const { trace, state } = this;
    const key = JSON.stringify([site, norm, state.words, state.special, state["mixing.shape"], this.app.drawnDark, this.clientWidth]);
    if (section.dataset.drawn !== key) {
      section.dataset.drawn = key;
      if (!section.firstChild) put(section, h("p", { class: "waiting" }, "Reading the map…"));
      section.toggleAttribute("aria-busy", true);
      const whole = await readMap(this, stack, site, norm, alive);
      if (!alive()) { delete section.dataset.drawn; return; }
      const again = keepFocus(this);
      this.#map(section, stack, site, norm, whole);
      again();
      section.removeAttribute("aria-busy");
    }
    const { rows, columns, whole } = this.shown;
    const [row, column] = this.#cell(stack, whole, rows, columns);
    const at = (groups, index) => groups.findIndex((group) => group.indices.includes(index));
    const [r, c] = [at(rows, row), at(columns, column)];
    this.shown.choose(r, c);
    this.#readout(r, c);
    await this.#steps(steps, stack, site, row, column, alive);
  }

  #map(section, stack, site, norm, whole) {
    const { trace, state } = this;
    const options = { words: state.words === "1", special: state.special !== "0" };
    const [rows, columns] = axesOf(trace, stack, options);
    const plain = rows.length === whole.rows && columns.length === whole.columns;
    const map = plain ? whole : groupMap(whole, rows, columns);
    const range = rangeOf(map);
    const peak = stack.kind === "attention" && !norm ? 1 : range.peak || 1;
    const space = Math.max(280, section.clientWidth || 560);
    const pick = (r, c) => this.set({ site, row: rows[r].indices[0], column: columns[c].indices[0] }, { replace: true });
    const describe = `${nameOf(stack, site)}: ${stack.queries} reads ${stack.keys}`;
    const asLines = state["mixing.shape"] === "lines";
    const tooLong = Math.max(rows.length, columns.length) > MOST;
    let body;
    if (asLines && tooLong) body = h("p", { class: "note" }, `Lines can be told apart up to ${MOST} tokens; this text has ${Math.max(rows.length, columns.length)}. The matrix shows them all.`);
    else if (asLines) {
      const drawn = lines(map, { rows, columns, peak, space, describe, onpick: (r) => pick(r, strongestOf(map, r)) });
      body = h("div", { class: "scroll" }, drawn.element);
      this.shown = { choose: (r) => drawn.choose(r) };
      this.#figures = [{ name: `lines ${site}`, svg: drawn.element, table: () => tableOf(map, rows, columns) }];
    } else {
      const drawn = matrix(map, {
        rows, columns, peak, negative: range.negative, space, describe, onpick: pick,
        onpoint: (r, c, event) => (r === null ? hideTip() : showTip(event.clientX, event.clientY, h("strong", {}, weight(map.data[r * map.columns + c]).replace("-", "−")), h("div", { dir: "auto" }, `${rows[r].label} reads ${columns[c].label}`))),
      });
      body = h("div", { class: "scroll" }, drawn.element);
      this.shown = { choose: drawn.choose };
      this.#figures = [drawn.figure(`map ${site}`)];
    }
    if (asLines && tooLong) this.shown = { choose: () => {} };
    Object.assign(this.shown, { map, rows, columns, whole, figures: this.#figures });
    const facts = Object.entries(this.roles?.scores.get(site) ?? {});
    put(section,
      h("div", { class: "heading" }, h("h2", { id: "map-name", data: { site } }, nameOf(stack, site)), segments("shape", "Matrix or lines", [["matrix", "Matrix"], ["lines", "Lines"]], asLines ? "lines" : "matrix", (value) => this.set({ "mixing.shape": value === "lines" ? value : null }))),
      facts.length ? h("p", { class: "facts" }, facts.map(([role, value]) => tip(h("span", { tabindex: 0 }, `${role.replaceAll("_", " ")} `, h("b", {}, spell(value))), () => this.roles.about[role] ?? role))) : null,
      facts.length ? h("p", { class: "small" }, "Means over this text, from 0 to 1; distances are in tokens. Point at one to read what it says.") : null,
      body, h("div", { id: "cell", "aria-live": "polite" }));
  }

  /** The cell of the address; without one, the largest weight between two different tokens that are not special. */
  #cell(stack, map, rows, columns) {
    const [row, column] = [this.state.row, this.state.column].map((text) => (text === undefined ? -1 : Number(text)));
    const holds = (groups, index) => groups.some((group) => group.indices.includes(index));
    if (holds(rows, row) && holds(columns, column)) return [row, column];
    if (map.cell && holds(rows, map.cell[0]) && holds(columns, map.cell[1])) return map.cell;
    const usual = (groups) => (groups.some((group) => !group.special) ? groups.filter((group) => !group.special) : groups).flatMap((group) => group.indices);
    const same = stack.queries === stack.keys && map.rows > 1;
    let best = null;
    let most = -1;
    for (const r of usual(rows)) for (const c of usual(columns)) {
      const value = Math.abs(map.data[r * map.columns + c]);
      if (value > most && !(same && r === c)) [best, most] = [[r, c], value];
    }
    return best ?? [rows[0].indices[0], columns[0].indices[0]];
  }

  #readout(r, c) {
    const { map, rows, columns } = this.shown;
    this.#figures = this.shown.figures ?? [];
    const row = columns.map((column, index) => [column, map.data[r * map.columns + index], index]);
    const some = row.filter(([, value]) => value !== 0);
    const order = [...some].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, SOURCES);
    const rest = some.length - order.length;
    const peak = Math.max(...order.map(([, value]) => Math.abs(value)), 1e-12);
    put(this.querySelector("#cell"),
      h("p", { id: "weight" }, h("b", { dir: "auto" }, `“${rows[r].label}”`), " reads ", h("b", { dir: "auto" }, `“${columns[c].label}”`), " with weight ", h("output", {}, weight(map.data[r * map.columns + c]).replace("-", "−"))),
      h("table", { class: "sources" }, h("caption", {}, `What this row reads most${rest > 0 ? `; ${rest} smaller ${rest === 1 ? "one is" : "ones are"} not listed` : ""}`),
        h("tbody", {}, order.map(([column, value, index]) => h("tr", { class: index === c ? "chosen" : null }, h("td", { dir: "auto" }, column.label), h("td", { class: "number" }, weight(value).replace("-", "−")), h("td", { class: "bar" }, h("i", { style: { width: `${(100 * Math.abs(value)) / peak}%`, background: shade(0.5) } })))))));
  }

  async #steps(section, stack, site, row, column, alive) {
    const everything = this.state["mixing.all"] === "1";
    const key = JSON.stringify([site, row, column, everything, this.app.drawnDark]);
    if (section.dataset.drawn === key) return;
    section.dataset.drawn = key;
    let found;
    try {
      found = await this.source.get(`/trace/${this.trace.id}/arithmetic`, { site, row, column });
    } catch (error) {
      this.#arithmetic = [];
      if (alive()) put(section, h("h2", {}, "How this weight comes about"), h("p", { class: "small" }, error.message));
      return;
    }
    if (!alive()) { delete section.dataset.drawn; return; }
    const [rows, columns] = axesOf(this.trace, stack, {});
    const list = arithmetic(found, { everything });
    this.#arithmetic = [{ name: `arithmetic of ${site}, row ${row}, column ${column}`, svg: () => mirror(list, ".strip span, .cell"), table: { columns: ["step", "formula", "values"], rows: found.steps.map((step) => [step.name, step.formula, [step.values].flat(2).join(" ")]) } }];
    put(section,
      h("h2", {}, "How this weight comes about"),
      h("p", { class: "small" }, "Row ", h("b", { dir: "auto" }, rows[row].label), ` (${row}), column `, h("b", { dir: "auto" }, columns[column].label), ` (${column}): the model's own numbers, step by step. `, tick("all", "all coordinates", everything, (on) => this.set({ "mixing.all": on ? 1 : null }))),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Steps" }, list));
  }
}

function strongestOf(map, r) {
  let best = 0;
  for (let c = 1; c < map.columns; c++) if (Math.abs(map.data[r * map.columns + c]) > Math.abs(map.data[r * map.columns + best])) best = c;
  return best;
}

/** A role's number; a kernel's energy has one for each offset. */
function spell(value) {
  if (typeof value === "number") return number(value);
  return Object.entries(value).sort(([a], [b]) => a - b).map(([offset, share]) => `${offset > 0 ? "+" : ""}${offset}: ${number(share)}`.replace("-", "−")).join("  ");
}

register(Mixing);
