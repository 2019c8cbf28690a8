// One tooltip for the page. It repeats what focus also shows, so nothing is reachable by pointer alone.
import { h, put } from "seqloom/dom";

let box = null;

/** Shows `content` (text or elements) near a place of the window. */
export function showTip(x, y, ...content) {
  if (!box) {
    box = h("div", { id: "tooltip", role: "tooltip" });
    document.body.append(box);
    addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    addEventListener("scroll", hideTip, { passive: true, capture: true });
  }
  put(box, ...content);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(x + 14, innerWidth - width - 8);
  const top = y + 18 + height > innerHeight - 8 ? y - height - 12 : y + 18;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${Math.max(8, top)}px`;
}

export function hideTip() {
  if (box) box.hidden = true;
}

/** Gives `element` a tooltip on hover and on focus; `content()` is asked each time. */
export function tip(element, content) {
  const show = (x, y) => showTip(x, y, ...[content()].flat());
  element.addEventListener("pointerenter", (event) => show(event.clientX, event.clientY));
  element.addEventListener("pointerleave", hideTip);
  element.addEventListener("focus", () => {
    if (!element.matches(":focus-visible")) return;
    const place = element.getBoundingClientRect();
    show(place.left, place.bottom - 12);
  });
  element.addEventListener("blur", hideTip);
  return element;
}

/** The same for all elements in `group` that match: `content(element)`. */
export function tips(group, selector, content) {
  const over = (event) => event.target.closest?.(selector);
  group.addEventListener("pointerover", (event) => {
    const element = over(event);
    if (element) showTip(event.clientX, event.clientY, ...[content(element)].flat());
  });
  group.addEventListener("pointerout", hideTip);
  group.addEventListener("focusin", (event) => {
    const element = over(event);
    if (!element?.matches(":focus-visible")) return;
    const place = element.getBoundingClientRect();
    showTip(place.left, place.bottom - 12, ...[content(element)].flat());
  });
  group.addEventListener("focusout", hideTip);
}

/** Calls `act(element | null)` as the pointer or the focus comes to an element in `group` that matches, and as it leaves. */
export function point(group, selector, act) {
  for (const kind of ["pointerover", "focusin"]) group.addEventListener(kind, (event) => { const element = event.target.closest?.(selector); if (element) act(element); });
  for (const kind of ["pointerout", "focusout"]) group.addEventListener(kind, () => act(null));
}
