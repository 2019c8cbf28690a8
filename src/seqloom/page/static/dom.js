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

/** Makes the arrow keys, Home and End walk through the focusable `items` of a group; one of them is in the tab order. */
export function walk(group, items, { columns = 1, chosen = 0 } = {}) {
  items.forEach((item, index) => { item.tabIndex = index === chosen ? 0 : -1; });
  group.addEventListener("keydown", (event) => {
    const at = items.indexOf(event.target);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const rightToLeft = getComputedStyle(group).direction === "rtl";
    const along = rightToLeft ? -1 : 1;
    const steps = { ArrowRight: along, ArrowLeft: -along, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: items.length - 1 - at };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = items[Math.min(Math.max(at + steps[event.key], 0), items.length - 1)];
    items.forEach((item) => { item.tabIndex = item === next ? 0 : -1; });
    next.focus();
  });
}
