// A view that draws itself anew gives the focus back to the same control, so that keys go on where they were.

/** A selector that finds the element again after it was built anew, or null. */
function selectorOf(element, view) {
  if (!element || element === view || !view.contains(element)) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const data = Object.entries(element.dataset).map(([key, value]) => `[data-${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}="${CSS.escape(value)}"]`).join("");
  const within = element.parentElement.closest("[id]");
  return data && within ? `#${CSS.escape(within.id)} ${data}` : null;
}

/** Call it before the view is drawn; call what it returns after each part that was drawn. */
export function keepFocus(view) {
  const selector = selectorOf(document.activeElement, view);
  return () => {
    if (selector && !view.contains(document.activeElement)) view.querySelector(selector)?.focus({ preventScroll: true });
  };
}
