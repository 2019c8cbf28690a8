// Search: what the search considered at each step, what it kept, what it dropped and why; and which source word is whose.
import { h, put, segments, tick } from "seqloom/dom";
import { alignmentOf } from "seqloom/alignment";
import { beamTree, indexOf, pathTo } from "seqloom/beam";
import { keepFocus } from "seqloom/focus";
import { number } from "seqloom/numbers";
import { label } from "seqloom/tokens";
import { tip } from "seqloom/tooltip";
import { View, register } from "seqloom/view";

const AT_ONCE = 40; // steps; more of them are drawn page by page
const STATUS = { kept: "kept", finished: "an answer", replaced: "was an answer", dropped: "dropped" };

class Search extends View {
  static view = "search";
  static label = "Search";
  static about = "How the answer was found: at each step the candidates that the search compared, with their scores, those that it followed, and why it dropped the others. A score is what the search ranks by: the log-probability so far, divided by the number of tokens unless the length penalty says otherwise.";
  static hints = { "language-model": ' Write a number of tokens into "Continue by" to see one.' };
  #figures = [];

  async draw(alive) {
    this.#figures = [];
    const again = keepFocus(this);
    const record = await this.source.get(`/trace/${this.trace.id}/search`);
    if (!alive()) return;
    const tree = h("section", { id: "search-tree" });
    const aligned = h("section", { id: "search-alignment" });
    put(this, tree, aligned);
    this.#tree(tree, record);
    again();
    if (this.trace.task !== "translation") return;
    if (!this.trace.stacks.some((stack) => stack.name === "cross")) {
      put(aligned, h("h2", {}, "Alignment"), h("p", { class: "method" }, "This model has no attention to the source, so there is nothing to align."));
      return;
    }
    const drawn = await alignmentOf(this, alive);
    if (!alive()) return;
    put(aligned, drawn.content);
    again();
    this.#figures.push(...drawn.figures);
  }

  figures() {
    return this.#figures;
  }

  #tree(section, record) {
    const candidates = indexOf(record);
    const rank = Math.min(Number(this.state["search.answer"] ?? 0), record.hypotheses.length - 1);
    const best = record.hypotheses[rank]?.steps ?? [];
    const step = Math.min(Number(this.state["search.step"] ?? -1), record.steps.length - 1);
    const dropped = this.state["search.dropped"] !== "0";
    const from = step >= 0 ? step - (step % AT_ONCE) : 0;
    const to = Math.min(from + AT_ONCE, record.steps.length);
    const drawing = record.steps.length ? beamTree(record, candidates, {
      from, to, best, dropped, chosen: step, pick: (at) => this.set({ "search.step": at === step ? null : at }, { replace: true }),
      tell: (element, one) => tip(element, () => this.#tell(candidates, one)),
    }) : null;
    put(section, this.#options(record, dropped), this.#answers(record, candidates, rank),
      drawing ? h("div", { class: "scroll tree", tabindex: "0", role: "region", "aria-label": "The search as a tree" }, drawing) : this.empty("Nothing was searched here."),
      this.#pages(from, record.steps.length), h("p", { class: "method" }, this.#legend(), ` ${record.note ?? ""} A click on a candidate lists its step.`),
      step >= 0 ? this.#step(record.steps[step], step, new Set(best)) : null);
    if (drawing) {
      this.#figures.push({ name: "search", svg: drawing, table: { columns: ["step", "candidate", "parent", "token", "log_probability", "total", "score", "status", "reason"],
        rows: record.steps.flatMap((one, at) => one.candidates.map((c) => [at + 1, c.id, c.parent, c.text, c.log_probability, c.total, c.score, c.status, c.reason])) } });
    }
  }

  #options(record, dropped) {
    const asked = this.trace.request.search ?? {};
    const again = (more) => this.app.ask({ ...this.trace.request, search: { ...asked, ...more } });
    const beam = record.options.beam ?? 1;
    const list = (id, words, value, values, key) => h("label", {}, words, h("select", { id, disabled: this.source.saved, onchange: (event) => again({ [key]: Number(event.target.value) }) },
      [...new Set([...values, value])].sort((a, b) => a - b).map((one) => h("option", { value: one, selected: one === value }, String(one)))));
    return h("div", { class: "controls" }, list("search-beam", "Beam", beam, [1, 2, 3, 4, 5, 8], "beam"), list("search-nbest", "answers", record.options.nbest ?? 1, [1, 2, 3, 4, 5], "nbest"),
      tick("search-dropped", "what was dropped", dropped, (on) => this.set({ "search.dropped": on ? null : 0 }, { replace: true })));
  }

  /** The answers, best first; the one that is chosen is marked in the tree, and its log-probability is written as a sum. */
  #answers(record, candidates, rank) {
    const { answer } = this.trace;
    const texts = [answer, ...(answer.alternatives ?? [])].map((one) => one.text);
    const choice = record.hypotheses.map((one, index) => h("li", { data: { answer: index } },
      h("button", { type: "button", class: "answer", "aria-pressed": String(index === rank), onclick: () => this.set({ "search.answer": index || null }, { replace: true }) },
        h("span", { class: "number" }, number(one.score)), h("span", { dir: "auto" }, texts[index] ?? one.steps.map((id) => candidates.get(id).text).join(" ")))));
    const chosen = record.hypotheses[rank];
    const terms = chosen?.steps.map((id) => candidates.get(id)) ?? [];
    return [h("ol", { class: "found", "aria-label": "Answers, with their scores" }, choice),
      chosen ? h("p", { class: "sum-of-logs" }, "log P = ", terms.map((one, index) => [index ? " + " : "", h("span", { class: "term" }, h("span", { class: "number" }, number(one.log_probability)), h("small", { dir: "auto" }, label(one)))]),
        " = ", h("output", { data: { number: "log-probability" } }, number(chosen.log_probability)), "; score ", penalties(record, terms.at(-1)), h("output", { data: { number: "score" } }, number(chosen.score))) : null];
  }

  #pages(from, steps) {
    if (steps <= AT_ONCE) return null;
    const pages = Array.from({ length: Math.ceil(steps / AT_ONCE) }, (_, page) => page * AT_ONCE);
    return h("div", { class: "controls" }, "Steps", segments("search-pages", "Steps that are drawn", pages.map((first) => [first, `${first + 1}–${Math.min(first + AT_ONCE, steps)}`]), from, (first) => this.set({ "search.step": first }, { replace: true })));
  }

  #legend() {
    return ["best", "kept", "finished", "dropped"].map((kind) => h("span", { class: `key ${kind}` }, { best: "the chosen answer", kept: "kept", finished: "ended", dropped: "dropped" }[kind]));
  }

  #tell(candidates, one) {
    const before = pathTo(candidates, one.id).slice(-6).map((id) => label(candidates.get(id))).join(" ");
    return [h("strong", { dir: "auto" }, before), h("div", {}, `log P ${number(one.log_probability)} · total ${number(one.total)} · score ${number(one.score)}`), h("div", {}, STATUS[one.status], one.reason ? `: ${one.reason}` : "")];
  }

  #step(step, at, best) {
    const order = { kept: 0, finished: 0, replaced: 1, dropped: 2 };
    const rows = [...step.candidates].sort((one, other) => order[one.status] - order[other.status] || other.score - one.score);
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Candidates of step ${at + 1}` }, h("table", { id: "search-step" }, h("caption", {}, `Step ${at + 1}`),
      h("thead", {}, h("tr", {}, ["token", "log P", "total", "score", "what became of it"].map((name, column) => h("th", { scope: "col", class: column > 0 && column < 4 ? "number" : null }, name)))),
      h("tbody", {}, rows.map((one) => h("tr", { data: { candidate: one.id }, class: best.has(one.id) ? "chosen" : one.status },
        h("th", { scope: "row", dir: "auto" }, label(one)), [one.log_probability, one.total, one.score].map((value) => h("td", { class: "number" }, number(value))), h("td", {}, STATUS[one.status], one.reason ? `: ${one.reason}` : ""))))));
  }
}

/** How a score comes about: "= log P / 10 tokens = ". */
function penalties({ options, steps }, last) {
  const [power, coverage] = [options.length_penalty ?? 1, options.coverage_penalty ?? 0];
  const length = last ? steps[last.step].length : 0;
  if (!length || (!power && !coverage)) return "= ";
  return `= log P${power ? ` / ${length}${power === 1 ? "" : `^${power}`} tokens` : ""}${coverage ? " + the penalty for coverage" : ""} = `;
}

register(Search);
