// The page of `seqloom serve`: choose a model, write a text, see its answer. Everything is set as text, never as markup.
const PREFIX = "/seqloom/v1";
const SHOWN = { translate: "Translate", generate: "Continue", classify: "Classify", tag: "Tag", fill: "Fill [MASK]", score: "Score" };
const $ = (id) => document.getElementById(id);
let models = [];
let asking = null;

function element(tag, content, name) {
  const made = document.createElement(tag);
  made.append(...(Array.isArray(content) ? content : [content]));
  if (name) made.className = name;
  return made;
}

function headers() {
  const key = $("key").value || sessionStorage.getItem("key") || "";
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function send(path, body, signal) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(PREFIX + path, { ...options, signal, headers: { "Content-Type": "application/json", ...headers() } });
  if (response.status === 401) $("key-line").hidden = false;
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error ?? `The server answered ${response.status}.`);
  }
  return response;
}

function chosen() {
  return models.find((model) => model.name === $("model").value);
}

function listVerbs() {
  const model = chosen();
  const verbs = model ? model.verbs.filter((verb) => verb in SHOWN && !(verb === "classify" && !model.labels.length)) : [];
  $("verb").replaceChildren(...verbs.filter((verb) => !(verb === "score" && model.languages)).map((verb) => new Option(SHOWN[verb], verb)));
  const link = $("explore");
  link.hidden = !model?.explore;
  if (model?.explore) link.href = `${model.explore}#token=${encodeURIComponent(sessionStorage.getItem("key") ?? "")}`;
}

async function listModels() {
  try {
    models = (await (await send("/models")).json()).models;
    if ($("key").value) sessionStorage.setItem("key", $("key").value);
    $("key-line").hidden = true;
    $("note").textContent = "";
  } catch (error) {
    $("note").textContent = error.message;
  }
  $("model").replaceChildren(...models.filter((model) => model.verbs.some((verb) => verb in SHOWN)).map((model) => new Option(model.name)));
  listVerbs();
}

const percent = (p) => `${(100 * p).toFixed(1)} %`;

function table(rows) {
  return element("table", element("tbody", rows.map(([name, number]) => element("tr", [element("td", name), element("td", number, "number")]))));
}

const WRITE = {
  translate: (found) => found.text,
  classify: (found) => (found.probabilities ? table(Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]).map(([label, p]) => [label, percent(p)])) : String(found.value ?? "")),
  tag: (found) => element("div", found.words.map((word, at) => element("ruby", [word, element("rt", found.tags[at])]))),
  fill: (found) => element("div", [found.text, ...found.masks.map((mask) => table(mask.candidates.map((one) => [one.text, percent(one.probability)])))]),
  score: (found) => table([["log-probability", found.log_probability.toFixed(3)], ["perplexity", found.perplexity?.toFixed(2) ?? "–"]]),
};

async function generate(body, signal) {
  const response = await send("/generate", { ...body, stream: true, max_length: 128 }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = ""; ; ) {
    const { value, done } = await reader.read();
    held += value ?? "";
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      const part = JSON.parse(line);
      if (part.error) throw new Error(part.error);
      if (part.text) $("answer").append(part.text);
    }
    if (done) return;
  }
}

async function ask() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  const [verb, body] = [$("verb").value, { model: $("model").value, texts: $("text").value }];
  $("answer").replaceChildren();
  $("note").textContent = "…";
  $("stop").hidden = false;
  try {
    if (verb === "generate") await generate(body, signal);
    else $("answer").append(WRITE[verb]((await (await send(`/${verb}`, body, signal)).json()).results[0]));
    $("note").textContent = "";
  } catch (error) {
    $("note").textContent = "";
    if (error.name !== "AbortError") $("answer").replaceChildren(element("p", error.message, "fault"));
  } finally {
    if (asking.signal === signal) $("stop").hidden = true;
  }
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("stop").addEventListener("click", () => asking?.abort());
$("model").addEventListener("change", listVerbs);
$("key").addEventListener("change", listModels);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
listModels();
