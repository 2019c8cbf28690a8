// Building elements. Text only ever becomes a text node, so a token "<script>" stays text.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Properties: class, style (object), on* (listeners), data (object), everything else an attribute. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element, made alike. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") {
      for (const [key, setting] of Object.entries(value)) element.style.setProperty(key, setting);
    } else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Gives `element` these children and no others; if it has them already, nothing moves, and focus stays. */
export function put(element, ...children) {
  const wanted = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  const there = element.childNodes;
  if (wanted.length !== there.length || wanted.some((child, index) => child !== there[index])) element.replaceChildren(...wanted);
  return element;
}

/** A row of buttons of which one is chosen: [[value, label, explanation], …]. */
export function segments(id, label, choices, chosen, onchoose) {
  const buttons = choices.map(([value, words, why]) =>
    h("button", { type: "button", data: { value }, "aria-pressed": String(value === chosen), title: why, onclick: () => onchoose(value) }, words));
  return h("div", { id, class: "segments", role: "group", "aria-label": label }, buttons);
}

/** A box that can be ticked. */
export function tick(id, label, checked, onchange) {
  return h("label", {}, h("input", { id, type: "checkbox", checked, onchange: (event) => onchange(event.target.checked) }), label);
}

/** Lets the browser paint and hear the user before work goes on. */
export function breathe() {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resolve();
    channel.port2.postMessage(null);
  });
}

/**
 * Makes the arrow keys, Home and End walk through the items of a group, which are those elements that `selector` finds,
 * or `items`; one of them is in the tab order. Items may be added later.
 */
export function walk(group, items, { columns = 1, chosen = 0, selector = null } = {}) {
  items.forEach((item, index) => { item.tabIndex = index === chosen ? 0 : -1; });
  group.addEventListener("keydown", (event) => {
    const all = selector ? [...group.querySelectorAll(selector)] : items;
    const at = all.indexOf(event.target);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const along = getComputedStyle(group).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: along, ArrowLeft: -along, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = all[Math.min(Math.max(at + steps[event.key], 0), all.length - 1)];
    all.forEach((item) => { item.tabIndex = item === next ? 0 : -1; });
    next.focus();
  });
}

/** Puts many elements into a row, some at a time; `make(index)` builds one. What fits on a screen is there at once. */
export async function fillRow(row, count, make, alive = () => true) {
  for (let from = 0; from < count; from += PORTION) {
    row.append(...Array.from({ length: Math.min(PORTION, count - from) }, (_, index) => make(from + index)));
    if (from + PORTION < count) await breathe();
    if (!alive()) return;
  }
}

const PORTION = 120;
