// Colours. Maps use one ramp whose lightness only ever falls (or, on a dark page, rises), so that it can be read without
// seeing hue; it is computed in OKLab (Ottosson 2020), where equal steps look equal. Categories are those of Okabe and
// Ito (2008), which differ for every kind of colour vision.

export const CATEGORIES = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#7F7F7F"];

export function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// Lightness, chroma and hue (degrees) at a few places of each ramp.
const RAMPS = {
  light: [[0.985, 0.004, 100], [0.9, 0.06, 105], [0.76, 0.1, 175], [0.56, 0.115, 235], [0.34, 0.12, 268]],
  dark: [[0.225, 0.012, 265], [0.38, 0.09, 268], [0.55, 0.1, 240], [0.74, 0.1, 180], [0.93, 0.1, 105]],
};
const SIGNED = {
  light: [[0.53, 0.155, 45], [0.8, 0.08, 55], [0.985, 0.003, 100], [0.78, 0.075, 240], [0.5, 0.13, 250]],
  dark: [[0.72, 0.15, 50], [0.45, 0.09, 48], [0.225, 0.012, 265], [0.42, 0.085, 248], [0.7, 0.12, 240]],
};

/** Lightness, a and b of a colour that is given by lightness, chroma and hue. */
function plane([lightness, chroma, hue]) {
  const angle = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

/** sRGB bytes of a colour in OKLab. */
function bytes([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const clipped = Math.min(Math.max(value, 0), 1);
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
}

function table(stops) {
  const colours = new Uint8ClampedArray(256 * 3);
  for (let index = 0; index < 256; index++) {
    const place = (index / 255) * (stops.length - 1);
    const from = Math.min(Math.floor(place), stops.length - 2);
    const share = place - from;
    const [one, other] = [plane(stops[from]), plane(stops[from + 1])];
    colours.set(bytes(one.map((value, k) => value + share * (other[k] - value))), 3 * index);
  }
  return colours;
}

const tables = {};

/** 256 colours, as 768 bytes, from nothing to most; the ramp of the page's theme. */
export function ramp() {
  const theme = dark() ? "dark" : "light";
  return (tables[theme] ??= table(RAMPS[theme]));
}

/** 256 colours from most negative (orange) over nothing to most positive (blue). */
export function signedRamp() {
  const theme = dark() ? "dark-signed" : "light-signed";
  return (tables[theme] ??= table(SIGNED[dark() ? "dark" : "light"]));
}

/** The CSS colour for a share in 0…1. Shares are drawn by their square root, so that 1/1,024 is still seen. */
export function shade(share) {
  return css(ramp(), Math.sqrt(Math.min(Math.max(share, 0), 1)));
}

/** The CSS colour for a value in −1…1. */
export function signedShade(value) {
  return css(signedRamp(), (1 + Math.sign(value) * Math.sqrt(Math.min(Math.abs(value), 1))) / 2);
}

function css(colours, place) {
  const at = 3 * Math.round(255 * place);
  return `rgb(${colours[at]} ${colours[at + 1]} ${colours[at + 2]})`;
}

/** Black or white, whichever can be read on `shade(share)` (or on `signedShade`, if `both` signs may occur). */
export function ink(share, both = false) {
  const colours = both ? signedRamp() : ramp();
  const place = Math.sqrt(Math.min(Math.abs(share), 1));
  const at = 3 * Math.round(255 * (both ? (1 + Math.sign(share) * place) / 2 : place));
  const [r, g, b] = [0, 1, 2].map((k) => {
    const value = colours[at + k] / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}
