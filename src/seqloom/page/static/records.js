// What a run keeps besides its curves: samples, labels, data, settings, and how to use it.
import { h } from "seqloom/dom";
import { count, percent } from "seqloom/numbers";
import { tip } from "seqloom/tooltip";

function section(id, title, ...content) {
  return h("section", { id: `run-${id}` }, h("h2", {}, title), content);
}

/** Answers to the same records at a validation; `step` is the one to show, `other` a second run. */
export function samples(history, other, step, onchoose) {
  const { at, all } = history.samples;
  if (!at.length) {
    return section("samples", "Samples", h("p", { class: "small" }, history.valid.steps.length ? "A model for this task has no answers to show." : history.state === "finished" ? "Nothing was validated, so there are no answers to show." : "There has been no validation yet, so there are no answers to show."));
  }
  const best = history.score?.split === "validation" ? history.score.step : null;
  const wanted = step ?? best ?? at[at.length - 1].step;
  const index = at.reduce((found, one, here) => (Math.abs(one.step - wanted) < Math.abs(at[found].step - wanted) ? here : found), 0);
  const shown = at[index];
  const others = other?.samples.at.at(-1);
  const theirs = new Map(others?.samples.map(({ text, answer }) => [text, answer]));
  const right = shown.samples.some(({ wanted }) => wanted);
  const words = (place) => `step ${count(at[place].step)}${at[place].step === best ? ", the best" : ""}`;
  const label = h("output", { for: "samples-step" }, words(index));
  const row = ({ text, answer, wanted }) => h("tr", {},
    h("td", { dir: "auto" }, text),
    right ? h("td", { dir: "auto" }, wanted) : null,
    h("td", { dir: "auto", class: wanted && answer === wanted ? "right" : null }, answer, wanted && answer === wanted ? h("span", { class: "tick", title: "exactly right" }, " ✓") : null),
    other ? h("td", { dir: "auto" }, theirs.get(text) ?? "–") : null);
  return section("samples", "Samples",
    at.length > 1 ? h("div", { class: "controls" }, h("label", { for: "samples-step" }, "Validation at"),
      h("input", { id: "samples-step", type: "range", min: 0, max: at.length - 1, value: index, "aria-valuetext": words(index),
        oninput: (event) => { label.textContent = words(Number(event.target.value)); event.target.setAttribute("aria-valuetext", label.textContent); },
        onchange: (event) => onchoose(at[Number(event.target.value)].step) }), label,
      all > at.length ? h("span", { class: "small" }, `${count(at.length)} of ${count(all)} validations can be chosen.`) : null)
      : h("p", { class: "small" }, `At ${words(index)}.`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers over time" }, h("table", { class: "wordy" },
      h("thead", {}, h("tr", {}, ["validation record", right ? "right answer" : null, other ? `answer of ${history.name}` : "answer", other ? `answer of ${other.name}${others ? `, step ${count(others.step)}` : ""}` : null].filter(Boolean).map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, shown.samples.map(row)))));
}

/** Each label by itself, and what is taken for what. */
export function labels(history, other) {
  const found = history.labels;
  if (!found) return null;
  const theirs = new Map(other?.labels?.rows.map(({ label, f1 }) => [label, f1]));
  const shared = found.rows.some(({ label }) => theirs.has(label));
  const cell = (value, digits) => h("td", { class: "number" }, value === null ? "–" : digits(value));
  const row = (one) => h("tr", {},
    h("th", { scope: "row", dir: "auto" }, one.label),
    h("td", { class: "share" }, h("i", { style: { width: `${100 * (one.f1 ?? 0)}%` } })),
    cell(one.f1, percent), shared ? cell(theirs.get(one.label) ?? null, percent) : null, cell(one.precision, percent), cell(one.recall, percent), cell(one.wanted, count), cell(one.given, count));
  const head = ["label", "", "F1", ...(shared ? [`F1 of ${other.name}`] : []), "precision", "recall", "right answer", "answer"];
  return section("labels", "Labels",
    h("p", { class: "small" }, `At the best validation, step ${count(found.step)}: how often each label was the right answer, and how often it was the answer.`),
    found.notes.map((note) => h("p", { class: "note" }, sentence(note))),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Labels" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: index > 1 ? "number" : null }, name || h("span", { class: "unseen" }, "F1 as a bar"))))), h("tbody", {}, found.rows.map(row)))),
    found.confusions.length ? [h("h3", {}, "Taken for each other"), h("ul", { class: "plainlist" }, found.confusions.map(([wanted, given, times]) => h("li", {}, h("b", { dir: "auto" }, wanted), " answered as ", h("b", { dir: "auto" }, given), `: ${count(times)} ${times === 1 ? "time" : "times"}`)))] : null);
}

/** How much there was to learn from, and what was noticed about it. */
export function data({ data: { splits, findings, treated, note } }) {
  const rows = splits.flatMap(({ split, records, columns }) => columns.map((column, index) => h("tr", {},
    h("th", { scope: "row" }, index ? "" : split),
    h("td", { class: "number" }, index ? "" : count(records)),
    h("td", {}, column.name), h("td", { class: "number" }, count(column.words)),
    h("td", { class: "number" }, `${count(column.distinct)}${column.complete ? "" : " or more"}`),
    h("td", { class: "number" }, column.mean.toFixed(1)), h("td", { class: "number" }, count(column.longest)),
    h("td", { class: "number" }, column.seen === null ? "" : percent(column.seen)),
    h("td", { dir: "auto" }, column.unseen.join(" ")))));
  const head = ["split", "records", "column", "words", "distinct", "words a record", "longest", "known words", "frequent unknown words"];
  const labelled = splits.filter((split) => split.labels.length);
  return section("data", "Data",
    note ? h("p", { class: "note" }, note) : null,
    rows.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Data" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: [1, 3, 4, 5, 6, 7].includes(index) ? "number" : null }, name)))), h("tbody", {}, rows))) : null,
    labelled.map((split) => h("p", { class: "small" }, `Labels of ${split.split}: `, split.labels.map(([label, times], index) => [index ? ", " : "", h("b", { dir: "auto" }, label), ` ${count(times)}`]), split.distinct_labels > split.labels.length ? `, and ${count(split.distinct_labels - split.labels.length)} more` : "", ".")),
    treated.length ? h("ul", { class: "plainlist" }, treated.map(({ split, what, count: times }) => h("li", {}, `${split}: ${count(times)} ${what}`))) : null,
    findings.length ? findings.map(finding) : splits.length ? h("p", { class: "small" }, "The checks found nothing to complain about.") : null);
}

function finding({ kind, meaning, severity, split, count: times, places }) {
  return h("details", { class: "finding" },
    h("summary", {}, h("span", { class: severity === "error" ? "fault" : "note" }, severity === "error" ? "error" : "warning"), ` ${split}: ${meaning} `, h("b", {}, `${count(times)}×`), " ", h("code", {}, kind)),
    h("ul", { class: "plainlist" }, places.map((place) => h("li", { dir: "auto" }, place)), times > places.length ? h("li", {}, `and ${count(times - places.length)} more; \`seqloom check\` lists the first of each file`) : null));
}

/** What somebody chose, then everything else; of two runs, first what differs. */
export function settings(history, other) {
  const theirs = new Map(other?.settings.map(({ key, value }) => [key, value]));
  const line = ({ key, value, about }) => {
    const name = h("th", { scope: "row" }, h("code", { tabindex: about ? 0 : null }, key));
    if (about) tip(name.firstChild, () => about);
    return h("tr", {}, name, h("td", {}, h("code", {}, value || "none")), other ? h("td", {}, h("code", {}, theirs.get(key) || "none")) : h("td", { class: "small" }, about));
  };
  const table = (rows) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings" }, h("table", { class: "settings" }, other ? h("thead", {}, h("tr", {}, ["", history.name, other.name].map((name) => h("th", { scope: "col" }, name)))) : null, h("tbody", {}, rows.map(line))));
  const apart = other ? [...history.settings, ...other.settings.filter(({ key }) => !history.settings.some((one) => one.key === key)).map((one) => ({ ...one, value: "" }))].filter(({ key, value }) => (theirs.get(key) ?? "") !== value) : [];
  const chosen = history.settings.filter(({ usual }) => !usual);
  const usual = history.settings.filter(({ usual }) => usual);
  if (!history.settings.length) return null;
  return section("settings", "Configuration",
    other ? [h("h3", {}, apart.length ? "What differs" : "Nothing differs"), apart.length ? table(apart) : null] : null,
    h("h3", {}, "What is not as it would be by default"), chosen.length ? table(chosen) : h("p", { class: "small" }, "Nothing."),
    h("details", { class: "plain" }, h("summary", {}, `The other ${count(usual.length)} settings`), table(usual)));
}

/** Commands and Python, to be copied. */
export function usage({ use, folder, state, moments }) {
  if (!use.length) return null;
  const usable = state === "finished" || moments.some(({ kind }) => kind !== "snapshot");
  const first = [{ what: "load it once", command: "", python: `import seqloom\nmodel = seqloom.load(${JSON.stringify(folder)})` }];
  return section("use", "How to use it",
    usable ? null : h("p", { class: "small" }, "As soon as its first checkpoint is saved:"),
    h("div", { class: "uses" }, h("div", {}, h("h3", {}, "In a terminal"), use.map(({ what, command }) => snippet(what, command))),
      h("div", {}, h("h3", {}, "In Python"), [...first, ...use].map(({ what, python }) => snippet(what, python)))));
}

function snippet(what, code) {
  const button = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${what}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(code);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } }, "copy");
  const pre = h("pre", { tabindex: 0 }, code);
  return h("div", { class: "snippet" }, h("div", { class: "small" }, what), pre, button);
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** Facts in a line each. */
export function facts(pairs) {
  return h("dl", { class: "facts-list" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

