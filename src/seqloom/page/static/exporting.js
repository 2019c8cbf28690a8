// Every figure of every view as SVG, PNG or CSV, made in the browser.
import { h, s } from "seqloom/dom";

// What an exported SVG needs of the page's style: it has to look the same on its own.
const INHERITED = ["fill", "stroke", "stroke-width", "stroke-opacity", "fill-opacity", "opacity", "font-family", "font-size", "font-weight",
  "text-anchor", "dominant-baseline", "stroke-dasharray", "stroke-linecap"];

function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name.replaceAll(" ", "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A copy of an SVG that carries its style with it. */
export function standalone(svg) {
  const copy = svg.cloneNode(true);
  copy.removeAttribute("style");
  const [from, to] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const name of INHERITED) to[index].style.setProperty(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: getComputedStyle(document.documentElement).backgroundColor })) paper.setAttribute(name, value);
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

/**
 * What stands on the page as HTML, as an SVG of boxes and texts: for `svg` of a figure, as a function. `boxes` are the
 * elements with a background or a border; all text within `root` is taken over where it stands.
 */
export function mirror(root, boxes) {
  const frame = root.getBoundingClientRect();
  const picture = s("svg", { width: frame.width, height: frame.height, viewBox: `0 0 ${frame.width} ${frame.height}` });
  for (const box of root.querySelectorAll(boxes)) {
    const [place, style] = [box.getBoundingClientRect(), getComputedStyle(box)];
    picture.append(s("rect", {
      x: place.left - frame.left + 0.5, y: place.top - frame.top + 0.5, width: place.width - 1, height: place.height - 1, rx: Number.parseFloat(style.borderRadius) || 0,
      fill: style.backgroundColor, stroke: style.borderTopWidth === "0px" ? "none" : style.borderTopColor, "stroke-dasharray": style.borderTopStyle === "dashed" ? "3 2" : null,
    }));
  }
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.data.trim() || node.parentElement.closest("button:not(.token), summary, label, svg")) continue;
    const style = getComputedStyle(node.parentElement);
    for (const { text, place } of linesOf(node)) picture.append(s("text", { x: place.left - frame.left, y: place.top - frame.top + place.height / 2, "dominant-baseline": "central",
      style: { fill: style.color, "font-size": style.fontSize, "font-weight": style.fontWeight, "font-family": style.fontFamily } }, text));
  }
  picture.style.position = "absolute";
  picture.style.left = "-100000px";
  root.append(picture);
  return picture;
}

/** The lines of a text on the page, with the place of each: words on the same height belong together. */
function linesOf(node) {
  const range = document.createRange();
  const lines = [];
  for (const { index, 0: word } of node.data.matchAll(/\s*\S+/g)) {
    range.setStart(node, index + word.length - word.trimStart().length);
    range.setEnd(node, index + word.length);
    const place = range.getBoundingClientRect();
    const last = lines.at(-1);
    if (!place.width) continue;
    if (last && Math.abs(last.place.top - place.top) < 2) last.text += word;
    else lines.push({ text: word.trimStart(), place });
  }
  return lines;
}

function blobOf(canvas) {
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

async function pngOf(svg) {
  const { width, height } = svg.getBoundingClientRect();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
  await image.decode();
  const canvas = h("canvas", { width: Math.ceil(2 * width), height: Math.ceil(2 * height) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return blobOf(canvas);
}

/** An SVG around a canvas: the picture itself stays a bitmap. */
function framed(canvas) {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${canvas.width}" height="${canvas.height}"><image width="${canvas.width}" height="${canvas.height}" href="${canvas.toDataURL("image/png")}"/></svg>`;
}

/** Comma-separated values (RFC 4180). */
export function csv({ columns, rows }) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Uses a figure's SVG; one that is made for export only is taken away again. */
async function withSvg(svg, use) {
  const element = typeof svg === "function" ? svg() : svg;
  try {
    return await use(element);
  } finally {
    if (element !== svg) element.remove();
  }
}

/**
 * The ways in which a figure {name, svg?, canvas?, table?} can be had: [label, action]. `svg` may be a function that puts
 * an element into the page, `canvas` and `table` functions that give theirs, for what is made only when it is asked for.
 */
export function waysOf({ name, svg, canvas, table }) {
  const ways = [];
  if (svg) {
    ways.push(["SVG", () => withSvg(svg, (element) => download(`${name}.svg`, new Blob([standalone(element)], { type: "image/svg+xml" })))]);
    ways.push(["PNG", () => withSvg(svg, async (element) => download(`${name}.png`, await pngOf(element)))]);
  } else if (canvas) {
    const made = () => (typeof canvas === "function" ? canvas() : canvas);
    ways.push(["SVG", () => download(`${name}.svg`, new Blob([framed(made())], { type: "image/svg+xml" }))]);
    ways.push(["PNG", async () => download(`${name}.png`, await blobOf(made()))]);
  }
  if (table) {
    ways.push(["CSV", async () => download(`${name}.csv`, new Blob([csv(typeof table === "function" ? await table() : table)], { type: "text/csv;charset=utf-8" }))]);
  }
  return ways;
}

export { download };
