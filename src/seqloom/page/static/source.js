// Where answers come from: the server that sent the page, or what is embedded in a saved file. Views see no difference,
// except that a saved file holds some answers only; asking for another one fails with a sentence that says so.
import { readTensors } from "seqloom/safetensors";
import { readSaved } from "seqloom/saved";

const PREFIX = `${location.pathname.replace(/\/+$/, "")}/seqloom/v1`; // the page may be below others, as in `seqloom serve`

const USUAL = { method: "conserved", norm: "0", size: "96", top: "5" };

/** "/trace/x/mixing?norm=1&site=encoder.0.head.1": parameters in alphabetical order; those that say nothing new left out. */
export function address(path, parameters = {}) {
  const given = Object.entries(parameters)
    .filter(([key, value]) => value !== null && value !== undefined && USUAL[key] !== String(value))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Answers of the server. `get` and `post` give parsed JSON, `tensors` gives {name: {shape, data}, metadata}. */
export class ServerSource {
  saved = false;
  #token;
  #kept = new Map();

  constructor(token) {
    this.#token = token;
  }

  /** What a trace answers never changes, so the last few answers are kept. `signal` lets a view give up. */
  async get(path, parameters, { signal } = {}) {
    return this.#keep(address(path, parameters), async (key) => (await this.#fetch(key, { signal })).json());
  }

  async tensors(path, parameters, { signal } = {}) {
    return this.#keep(address(path, parameters), async (key) => readTensors(await (await this.#fetch(key, { signal })).arrayBuffer()));
  }

  async post(path, body, { signal } = {}) {
    const response = await this.#fetch(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });
    return response.json();
  }

  /** A file to save: a Blob. */
  async blob(path, parameters) {
    return (await this.#fetch(address(path, parameters))).blob();
  }

  async #keep(key, ask) {
    if (!key.startsWith("/trace/")) return ask(key);
    if (!this.#kept.has(key)) {
      const answer = await ask(key);
      this.#kept.set(key, answer);
      if (this.#kept.size > 64) this.#kept.delete(this.#kept.keys().next().value);
    }
    return this.#kept.get(key);
  }

  async #fetch(path, options = {}) {
    let response;
    try {
      response = await fetch(PREFIX + path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${this.#token}` } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer. If it was stopped, start it again with `seqloom explore` and open the address that it prints.");
    }
    if (response.ok) return response;
    const said = await response.json().catch(() => ({}));
    throw Object.assign(new Error(said.error ?? `The server answered ${response.status}.`), { status: response.status });
  }
}

/** Answers embedded in a saved file, by address; `state` is what the page opens with. */
export class SavedSource {
  saved = true;
  #answers;
  #tensors;

  constructor({ answers, tensors, state }) {
    this.#answers = answers;
    this.#tensors = tensors;
    this.state = state;
  }

  async get(path, parameters) {
    const key = address(path, parameters);
    if (Object.hasOwn(this.#answers, key)) return this.#answers[key];
    throw missing();
  }

  /** Rows of a map are cut out of the whole one. */
  async tensors(path, { rows, ...parameters } = {}) {
    const found = this.#tensors(address(path, parameters));
    if (!found) throw missing();
    if (!rows) return found;
    const [from, to] = rows.split(":").map(Number);
    const { shape: [, columns], data } = found.weights;
    return { ...found, weights: { shape: [to - from, columns], data: data.subarray(from * columns, to * columns) } };
  }

  async post() {
    throw missing();
  }

  async blob() {
    throw missing();
  }
}

function missing() {
  const sentence = "This is a saved page, and it does not hold this. Open the model itself to see it: seqloom explore RUN.";
  return Object.assign(new Error(sentence), { status: 404 });
}

/** The source of this page: embedded data, where there are any, else the server. */
export async function openSource(token) {
  const embedded = document.getElementById("seqloom-data");
  return embedded ? new SavedSource(await readSaved(embedded.textContent)) : new ServerSource(token);
}
