// Runs: how a training went and goes, the checkpoints it kept, and another run beside it.
import { chartsOf, spelled } from "seqloom/curves";
import { suits } from "seqloom/chart";
import { h, put, segments } from "seqloom/dom";
import { count, number, percent } from "seqloom/numbers";
import { data, facts, labels, samples, settings, usage } from "seqloom/records";
import { requestOf } from "seqloom/state";
import { View, register } from "seqloom/view";

const SOON = 2000; // milliseconds between two questions while it is trained
const LATER = 15000;
const SCALES = [["linear", "linear", "Equal distances are equal differences"], ["log", "logarithmic", "Equal distances are equal ratios"]];
const STATES = {
  finished: "finished", "in training": "in training", resumable: "not finished", "not started": "not started", unreadable: "cannot be read",
};

class Runs extends View {
  static view = "runs";
  static label = "Runs";
  static about = "How the model was trained: its score, its curves, what it answered on the way, its data and its configuration.";
  static needsTrace = false;

  #history = null;
  #others = []; // the runs beside this one
  #other = null;
  #timer = null;
  #silent = ""; // why there is nothing new
  #charts = new Map();

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  async draw(alive) {
    if (!this.#history) {
      this.#history = await this.source.get("/run");
      if (!alive()) return;
    }
    if (!this.source.saved && !this.#timer) {
      this.#others = (await this.source.get("/runs")).runs;
      if (!alive()) return;
    }
    const wanted = this.source.saved ? null : this.state["runs.with"] ?? null;
    if (wanted !== (this.#other?.name ?? null)) {
      this.#other = wanted === null ? null : await this.source.get("/run", { name: wanted });
      if (!alive()) return;
    }
    this.#render();
    if (!this.source.saved && !this.#timer) this.#wait();
  }

  figures() {
    return [...this.#charts].filter(([, chart]) => chart.isConnected && chart.svg).map(([id, chart]) => ({ name: `${this.#history.name}-${id}`, svg: chart.svg, table: chart.table }));
  }

  // ---- asking again ----

  #wait() {
    const live = [this.#history, this.#other].some((run) => run?.state === "in training");
    this.#timer = setTimeout(() => this.#ask(), live ? SOON : LATER);
  }

  async #ask() {
    try {
      const asked = [this.source.get("/run", { since: this.#history.version })];
      if (this.#other) asked.push(this.source.get("/run", { since: this.#other.version, name: this.#other.name }));
      const [mine, theirs] = await Promise.all(asked);
      if (!this.isConnected) return;
      const news = !mine.same || (theirs && !theirs.same) || this.#silent;
      if (!mine.same) this.#history = mine;
      if (theirs && !theirs.same && theirs.name === this.#other?.name) this.#other = theirs;
      this.#silent = "";
      if (news) this.#render();
    } catch (error) {
      if (!this.isConnected) return;
      if (this.#silent !== error.message) {
        this.#silent = error.message;
        this.#render();
      }
    }
    this.#wait();
  }

  // ---- the page ----

  #render() {
    const [history, other] = [this.#history, this.#other];
    const part = (name, key, build) => this.part(name, JSON.stringify(key), build);
    const twice = other?.version ?? "";
    put(
      this,
      part("head", [history.score, history.state, history.progress, history.facts, history.notes, other?.score, other?.state, this.#silent], () => this.#head()),
      part("moments", [history.moments, history.state, this.state.checkpoint, this.trace?.request], () => this.#moments()),
      part("with", [this.#others, other?.name], () => this.#beside()),
      this.#drawCharts("quality"),
      part("samples", [history.samples, history.score, twice, this.state["runs.samples"]], () => samples(history, other, this.state["runs.samples"] ? Number(this.state["runs.samples"]) : null, (step) => this.set({ "runs.samples": step }, { replace: true }))),
      part("labels", [history.labels, twice], () => labels(history, other)),
      this.#drawCharts("course"),
      part("data", history.data, () => data(history)),
      part("settings", [history.settings, twice], () => settings(history, other)),
      part("use", [history.use, history.state, history.moments.length], () => usage(history)),
    );
  }

  #head() {
    const [history, other] = [this.#history, this.#other];
    return h("section", { id: "run-head" },
      h("div", { class: "scores" }, score(history), other ? score(other) : null),
      this.#silent ? h("p", { class: "note", role: "status" }, this.#silent) : null,
      history.notes.map((note) => h("p", { class: "note" }, note)),
      h("details", { class: "plain", open: true }, h("summary", {}, "About this training"), facts(history.facts)));
  }

  /** The checkpoints on a slider; every other view shows the model of the chosen one. */
  #moments() {
    if (this.source.saved || this.#history.moments.length < 2) return null;
    const opened = { name: null, words: "the model that was opened" };
    const stops = [...this.#history.moments.map(({ name, step, kind }) => ({ name, step, words: `step ${count(step)}${kind === "snapshot" ? "" : `, ${kind === "stopped" ? "where it was stopped" : "a checkpoint"}`}` })), opened];
    const chosen = this.state.checkpoint ?? null;
    const index = Math.max(0, stops.findIndex(({ name }) => name === chosen));
    const words = h("output", { for: "checkpoint" }, stops[index].words);
    const labelled = Math.ceil(stops.length / Math.max(3, Math.min(this.clientWidth, 900) / 64));
    return h("section", { id: "run-moments" },
      h("h2", {}, h("label", { for: "checkpoint" }, "Checkpoint")),
      h("div", { class: "slider" },
        h("input", { id: "checkpoint", type: "range", min: 0, max: stops.length - 1, value: index, "aria-valuetext": stops[index].words,
          oninput: (event) => { words.textContent = stops[Number(event.target.value)].words; event.target.setAttribute("aria-valuetext", words.textContent); },
          onchange: (event) => this.#choose(stops[Number(event.target.value)].name) }),
        h("div", { class: "stops", "aria-hidden": "true" }, stops.map(({ name, step }, place) => h("span", { class: place === index ? "chosen" : null }, name === null ? "model" : place % labelled || stops.length - place <= labelled ? "" : count(step))))),
      h("p", { class: "small" }, "Every other view shows ", words, chosen === null ? "." : ". The line in the charts is this step."));
  }

  #choose(checkpoint) {
    const request = this.trace?.request ?? requestOf(this.state) ?? this.model.example;
    this.app.go({ ...(request ?? {}), checkpoint }, { replace: true });
  }

  #beside() {
    if (this.source.saved || !this.#others.length) return null;
    const choose = h("select", { id: "runs-with", onchange: (event) => this.set({ "runs.with": event.target.value || null }) },
      h("option", { value: "" }, "no other run"), this.#others.map(({ name, task }) => h("option", { value: name, selected: name === this.#other?.name }, `${name} (${task})`)));
    return h("div", { class: "controls" }, h("label", {}, "Beside it", choose), this.#other ? h("span", { class: "small" }, `${this.#other.name} is drawn with dashed lines.`) : null);
  }

  /** The charts about how good it is ("quality"), or how the training went ("course"). */
  #drawCharts(group) {
    const known = this.state["runs.scale"];
    const found = chartsOf(group, this.#history, this.#other, known === "log" || known === "linear" ? known : undefined);
    const step = this.#history.moments.find(({ name }) => name === this.state.checkpoint)?.step;
    const frames = found.map(({ id, title, about, chart }) => {
      if (!this.#charts.has(id)) this.#charts.set(id, document.createElement("seq-chart"));
      const element = this.#charts.get(id);
      element.show({ ...chart, chosen: step });
      const drawn = known ?? suits(chart.series.flatMap(({ values }) => values));
      const scale = id === "loss" ? segments("runs-scale", "Axis of the loss", SCALES, drawn, (value) => this.set({ "runs.scale": value })) : null;
      return this.part(`chart-${id}`, JSON.stringify([title, about, drawn]), () => h("figure", { id: `chart-${id}`, class: id === "loss" ? "whole" : null }, h("figcaption", {}, h("h2", {}, title), scale, about ? h("p", { class: "small" }, about) : null), element));
    });
    if (!frames.length) return group === "quality" ? this.part("nothing", "", () => h("p", { class: "empty" }, "No step has been taken yet.")) : null;
    return put(this.part(`charts-${group}`, "", () => h("div", { class: "charts" })), frames);
  }
}

/** The number to look at first. */
function score({ name, state, score: found, progress, valid, facts: pairs }) {
  const budget = pairs.find(([key]) => key === "budget")?.[1];
  const left = state === "in training" && progress.spent > 0.02 && progress.seconds ? (progress.seconds * (1 - progress.spent)) / progress.spent : null;
  const rest = Object.entries(found?.measures ?? {}).filter(([measure]) => measure !== found.metric);
  const so = [STATES[state] ?? state];
  if (state !== "finished" && progress.spent !== null) so.push(`${percent(Math.min(progress.spent, 1))} of ${budget ?? "the budget"}`);
  if (left !== null) so.push(`about ${time(left)} left`);
  return h("div", { class: "run-score", data: { run: name } },
    h("p", { class: "run-state", data: { state } }, h("b", { dir: "auto" }, name), ` · ${so.join(" · ")}`),
    found === null ? h("p", { class: "headline" }, "no score yet") : [
      h("p", { class: "headline" }, h("output", { data: { number: "score" } }, number(found.value)), ` ${spelled(found.metric)}`),
      h("p", { class: "small" }, `${found.split === "validation" ? `the best validation${state === "finished" ? "" : " so far"}, at step ${count(found.step)}` : `training, at step ${count(found.step)}: nothing was validated`}${found.sample ? `, of ${found.sample}` : ""}; ${found.lower ? "lower" : "higher"} is better`),
      rest.length ? h("p", { class: "small" }, `At that step: ${rest.map(([measure, value]) => `${spelled(measure)} ${number(value)}`).join(", ")}${valid.sample && !found.sample ? ` (metrics besides loss and perplexity: of ${valid.sample})` : ""}`) : null,
    ],
    state === "in training" || state === "resumable" ? h("progress", { max: 1, value: Math.min(progress.spent ?? 0, 1), "aria-label": "share of the budget that is spent" }) : null,
    state === "resumable" ? h("p", { class: "small" }, "Nobody is training it at the moment; the same `seqloom train` command resumes it.") : null);
}

function time(seconds) {
  if (seconds >= 7200) return `${(seconds / 3600).toFixed(1)} hours`;
  return seconds >= 120 ? `${Math.round(seconds / 60)} minutes` : `${Math.max(1, Math.round(seconds))} seconds`;
}

register(Runs);
