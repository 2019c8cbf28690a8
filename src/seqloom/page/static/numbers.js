// How numbers are written, everywhere on the page alike: what Python has, rounded to the digits shown.

/** A weight or probability: four decimals. */
export function weight(value) {
  return Number(value).toFixed(4);
}

/** A probability as a percentage with one decimal. */
export function percent(value) {
  return `${(100 * value).toFixed(1)}%`;
}

/** Any other number: four significant digits, with a true minus sign. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(3) : value.toPrecision(4);
  return text.replaceAll("-", "−");
}

/** A signed number, for what adds up. */
export function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

/** 12,345 */
export function count(value) {
  return Number(value).toLocaleString("en");
}
