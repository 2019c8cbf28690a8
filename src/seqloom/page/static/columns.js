// Numbers in a column: all with the same decimals, so that the points stand below each other.

const MOST = 6;

/** How many decimals show the largest of some numbers with four digits. */
export function decimalsOf(values) {
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return largest > 0 ? Math.min(Math.max(3 - Math.floor(Math.log10(largest)), 0), MOST) : 0;
}

/** A function that writes numbers as the column of `values` needs it: with a sign, unless `plain`. */
export function columnOf(values, { plain = false } = {}) {
  const decimals = decimalsOf(values);
  return (value) => {
    if (value === 0) return "0";
    const text = Math.abs(value).toFixed(decimals);
    const nothing = Number(text) === 0;
    const sign = value < 0 && !nothing ? "−" : plain || nothing ? "" : "+";
    return sign + text;
  };
}

/** Round places for the ticks of an axis between two numbers: steps of 1, 2 or 5 times a power of ten. */
export function ticksOf(from, to, about = 5) {
  if (!(to > from)) return [from];
  const rough = (to - from) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const ticks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; k++) ticks.push(k * step);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return ticks.map((value) => Number(value.toFixed(decimals)));
}
