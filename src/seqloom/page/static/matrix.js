// A map as a matrix: cells on a canvas, labels and marks as SVG above it. Colours are by the square root of a weight.
import { breathe, h, s } from "seqloom/dom";
import { weight } from "seqloom/numbers";
import { ink, ramp, shade, signedRamp, signedShade } from "seqloom/palette";

const LABELLED = 11; // pixels of a cell from which on rows and columns have labels
const MOST = 80; // rows and columns that have labels in any case
const NUMBERED = 34; // and from which on cells have numbers
const PIXELS = 150_000; // cells that are drawn at a time
const VECTOR = 10_000; // cells up to which an exported SVG has a rectangle for each

/** Draws a map onto a canvas, some rows at a time; a pixel shows the largest weight that it covers. */
async function paint(canvas, map, peak, negative) {
  const colours = negative ? signedRamp() : ramp();
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  const band = Math.max(1, Math.floor(PIXELS / width / Math.max(1, map.rows / height) / Math.max(1, map.columns / width)));
  const span = (index, pixels, cells) => [Math.floor((index * cells) / pixels), Math.max(Math.ceil(((index + 1) * cells) / pixels), Math.floor((index * cells) / pixels) + 1)];
  const columns = Array.from({ length: width }, (_, x) => span(x, width, map.columns));
  for (let top = 0; top < height; top += band) {
    const image = context.createImageData(width, Math.min(band, height - top));
    for (let y = 0; y < image.height; y++) {
      const [first, last] = span(top + y, height, map.rows);
      for (let x = 0; x < width; x++) {
        const [left, right] = columns[x];
        let most = 0;
        for (let r = first; r < last; r++) for (let c = left; c < right; c++) {
          const value = map.data[r * map.columns + c];
          if (Math.abs(value) > Math.abs(most)) most = value;
        }
        const root = Math.sqrt(Math.min(Math.abs(most) / peak, 1));
        const at = 3 * Math.round(255 * (negative ? (1 + Math.sign(most) * root) / 2 : root));
        const to = 4 * (y * width + x);
        image.data[to] = colours[at];
        image.data[to + 1] = colours[at + 1];
        image.data[to + 2] = colours[at + 2];
        image.data[to + 3] = 255;
      }
    }
    context.putImageData(image, 0, top);
    if (top + band < height) await breathe();
    if (!canvas.isConnected && top > 0) return;
  }
}

function shorten(text, most = 14) {
  const characters = Array.from(text);
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
}

/**
 * The matrix of a map. `rows` and `columns` are groups (maps.js), `space` the width there is in pixels.
 * `onpick(r, c)` is called on click and as arrow keys move; `onpoint(r, c, event)` as the pointer moves, (null) when it leaves.
 * Returns {element, choose(r, c), figure(name)}.
 */
export function matrix(map, { rows, columns, peak, negative = false, space, onpick, onpoint, describe, legend = true }) {
  const longest = (groups) => Math.max(...groups.map((group) => Array.from(shorten(group.label)).length), 1);
  const margins = { left: 8.2 * longest(rows) + 14, top: 6.4 * longest(columns) + 18 };
  let cell = Math.min(38, Math.floor(Math.min((space - margins.left - 40) / map.columns, 720 / map.rows)));
  if (Math.max(map.rows, map.columns) <= MOST) cell = Math.max(cell, LABELLED); // it may then be wider than the page, and scrolls
  const labelled = cell >= LABELLED;
  const [left, top] = labelled ? [margins.left, margins.top] : [2, 2];
  const width = labelled ? cell * map.columns : Math.min(map.columns * Math.max(cell, 1), Math.floor(space - left - 2));
  const height = labelled ? cell * map.rows : Math.min(map.rows * Math.max(cell, 1), Math.round((width * map.rows) / map.columns) || 1, 720);
  const size = { x: width / map.columns, y: height / map.rows };

  const canvas = h("canvas", { class: "cells", tabindex: 0, role: "img", "aria-label": describe, data: { map: describe } });
  const pixels = labelled ? [map.columns, map.rows] : [width, height];
  [canvas.width, canvas.height] = pixels;
  Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  paint(canvas, map, peak, negative);

  const rowTexts = labelled ? rows.map((row, r) => s("text", { x: left - 6, y: top + (r + 0.5) * size.y, "text-anchor": "end", "dominant-baseline": "central", class: row.special ? "special" : null }, shorten(row.label))) : [];
  const columnTexts = labelled ? columns.map((column, c) => {
    const [x, y] = [left + (c + 0.5) * size.x, top - 6];
    return s("text", { x, y, transform: `rotate(-55 ${x} ${y})`, class: column.special ? "special" : null }, shorten(column.label));
  }) : [];
  const numbers = [];
  if (labelled && cell >= NUMBERED) {
    for (let r = 0; r < map.rows; r++) for (let c = 0; c < map.columns; c++) {
      const value = map.data[r * map.columns + c];
      if (Math.abs(value) < 0.005) continue;
      numbers.push(s("text", { class: "number", x: left + (c + 0.5) * size.x, y: top + (r + 0.5) * size.y, "text-anchor": "middle", "dominant-baseline": "central", style: { fill: ink(value / peak, negative) } }, value.toFixed(2).replace("-", "−").replace(/^(−?)0\./, "$1.")));
    }
  }
  const mark = s("rect", { class: "mark", width: Math.max(size.x, 5), height: Math.max(size.y, 5), visibility: "hidden" });
  const band = s("rect", { class: "band", x: left, width, height: Math.max(size.y, 1), visibility: "hidden" });
  const over = s("svg", { class: "labels", width: left + width + (labelled ? 40 : 4), height: top + height + 4, "aria-hidden": "true" },
    s("rect", { class: "frame", x: left - 0.5, y: top - 0.5, width: width + 1, height: height + 1 }), rowTexts, columnTexts, numbers, band, mark);
  const element = h("div", { class: "matrix", style: { width: `${left + width + (labelled ? 40 : 4)}px`, height: `${top + height + 4}px` } }, canvas, over);

  let chosen = null;
  const choose = (r, c) => {
    chosen = [r, c];
    mark.setAttribute("x", left + c * size.x - (Math.max(size.x, 5) - size.x) / 2);
    mark.setAttribute("y", top + r * size.y - (Math.max(size.y, 5) - size.y) / 2);
    band.setAttribute("y", top + r * size.y);
    for (const part of [mark, band]) part.setAttribute("visibility", "visible");
    rowTexts.forEach((text, index) => text.classList.toggle("chosen", index === r));
    columnTexts.forEach((text, index) => text.classList.toggle("chosen", index === c));
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const [r, c] = [Math.floor(((event.clientY - box.top) / box.height) * map.rows), Math.floor(((event.clientX - box.left) / box.width) * map.columns)];
    return r >= 0 && c >= 0 && r < map.rows && c < map.columns ? [r, c] : null;
  };
  canvas.addEventListener("pointermove", (event) => { const at = place(event); if (at) onpoint?.(...at, event); });
  canvas.addEventListener("pointerleave", () => onpoint?.(null));
  canvas.addEventListener("click", (event) => { const at = place(event); if (at) onpick?.(...at); });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [r, c] = chosen ?? [0, 0];
    const clip = (value, most) => Math.min(Math.max(value, 0), most - 1);
    onpick?.(clip(r + steps[event.key][0], map.rows), clip(c + steps[event.key][1], map.columns));
  });
  const figure = (name) => ({
    name,
    svg: map.rows * map.columns <= VECTOR && labelled ? () => vector(map, { over, left, top, size, peak, negative }) : null,
    canvas,
    table: () => tableOf(map, rows, columns),
  });
  return { element: legend ? h("div", {}, element, scale(peak, negative)) : element, canvas, choose, figure };
}

/** The numbers of a map, with labels, for export. */
export function tableOf(map, rows, columns) {
  return { columns: ["", ...columns.map((column) => column.label)], rows: rows.map((row, r) => [row.label, ...columns.map((_, c) => map.data[r * map.columns + c])]) };
}

/** The matrix as one SVG, a rectangle for each cell, for export. */
function vector(map, { over, left, top, size, peak, negative }) {
  const copy = over.cloneNode(true);
  const cells = [];
  for (let r = 0; r < map.rows; r++) for (let c = 0; c < map.columns; c++) {
    const share = map.data[r * map.columns + c] / peak;
    cells.push(s("rect", { x: left + c * size.x, y: top + r * size.y, width: size.x, height: size.y, fill: negative ? signedShade(share) : shade(share), stroke: "none" }));
  }
  copy.querySelector(".frame").after(...cells);
  over.parentElement.append(copy); // so that it has a size and a style while it is written out
  copy.style.left = "-100000px";
  return copy;
}

/** A small legend: what the colours mean. */
export function scale(peak, negative = false) {
  const places = negative ? [-1, -0.25, 0, 0.25, 1] : [0, 0.05, 0.25, 0.5, 1];
  return h("div", { class: "legend" }, places.map((place) => h("span", {}, h("i", { style: { background: negative ? signedShade(place) : shade(place) } }), weight(place * peak).replace("-", "−"))), h("span", {}, "(small weights are shown in more detail)"));
}

/** All thumbnails on one canvas, for export: [[canvas, label], …], so many in a row. */
export function contactSheet(items, columns, side = 96) {
  const [cell, line] = [side + 10, 16];
  const sheet = h("canvas", { width: columns * cell + 10, height: Math.ceil(items.length / columns) * (cell + line) + 10 });
  const context = sheet.getContext("2d");
  const page = getComputedStyle(document.documentElement);
  context.fillStyle = page.backgroundColor;
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.imageSmoothingEnabled = false;
  context.font = `12px ${page.fontFamily}`;
  context.textAlign = "center";
  items.forEach(([canvas, label], index) => {
    const [x, y] = [10 + (index % columns) * cell, 10 + Math.floor(index / columns) * (cell + line)];
    context.drawImage(canvas, x, y, side, side);
    context.strokeStyle = page.getPropertyValue("--line");
    context.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
    context.fillStyle = page.color;
    context.fillText(label, x + side / 2, y + side + 13);
  });
  return sheet;
}

/** Paints thumbnails (bytes of √w) into canvases, some at a time. */
export async function paintThumbnails(canvases, { shape: [, rows, columns], data }, keep, alive) {
  const colours = ramp();
  const [keptRows, keptColumns] = keep ?? [null, null];
  const [height, width] = [keptRows?.length ?? rows, keptColumns?.length ?? columns];
  for (let index = 0; index < canvases.length; index++) {
    const canvas = canvases[index];
    [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    for (let y = 0; y < height; y++) {
      const from = index * rows * columns + (keptRows ? keptRows[y] : y) * columns;
      for (let x = 0; x < width; x++) {
        const at = 3 * data[from + (keptColumns ? keptColumns[x] : x)];
        const to = 4 * (y * width + x);
        image.data[to] = colours[at];
        image.data[to + 1] = colours[at + 1];
        image.data[to + 2] = colours[at + 2];
        image.data[to + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
    if (index % 24 === 23) {
      await breathe();
      if (!alive()) return;
    }
  }
}
