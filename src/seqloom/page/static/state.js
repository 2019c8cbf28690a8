// The state of the page is in its address, after the #: reload it, keep it as a bookmark, send it to yourself.
// `token` opens the server, the keys of REQUEST say what is traced, all others belong to views.

export const REQUEST = ["text", "second", "target", "search", "changes", "checkpoint"];
const STRUCTURED = new Set(["search", "changes"]);

/** {key: value} of the address; `search` and `changes` are parsed, everything else is a string. */
export function readState() {
  const state = {};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    try {
      state[key] = STRUCTURED.has(key) ? JSON.parse(value) : value;
    } catch {
      // An address edited by hand: a part that cannot be read is as if it were not there.
    }
  }
  return state;
}

/** Writes the state into the address; `replace` leaves no step in the history. */
export function writeState(state, { replace = false } = {}) {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length)) continue;
    parameters.set(key, STRUCTURED.has(key) ? JSON.stringify(value) : value);
  }
  try {
    history[replace ? "replaceState" : "pushState"](null, "", `#${parameters}`);
  } catch {
    // In a notebook's frame there is no address; the state then lasts as long as the page.
  }
}

/** The part of the state that says what is traced, or null if it says nothing. */
export function requestOf(state) {
  const request = Object.fromEntries(REQUEST.filter((key) => key in state).map((key) => [key, state[key]]));
  return "text" in request ? request : null;
}
