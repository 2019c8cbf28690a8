// What a saved file holds: answers by address, packed as page/saved.py says.

const STEP = 1e-6; // weights are kept to six decimals

async function gunzip(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

function decode(kind, shape, buffer, offset) {
  const count = shape.reduce((product, size) => product * size, 1);
  if (kind === "bytes") return new Uint8Array(buffer, offset, count);
  if (kind === "floats") return new Float32Array(buffer.slice(offset, offset + 4 * count));
  const planes = new Uint8Array(buffer, offset, 4 * count);
  const data = new Float64Array(count);
  for (let index = 0; index < count; index++) {
    const coded = (planes[index] | (planes[count + index] << 8) | (planes[2 * count + index] << 16) | (planes[3 * count + index] << 24)) >>> 0;
    const cut = coded >>> 1;
    const value = cut === 0 ? 0 : (cut + 0.5) * STEP; // the middle of what was cut off, on the right side of every shown digit
    data[index] = coded & 1 ? -value : value;
  }
  return data;
}

/** {answers, state, tensors(address)} of the embedded text; arrays are decoded when they are asked for. */
export async function readSaved(base64) {
  const buffer = await gunzip(base64);
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { answers, tensors, state } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const read = (address) => {
    if (!(address in tensors)) return null;
    const { metadata, arrays } = tensors[address];
    const found = { metadata };
    for (const [name, [kind, shape, offset]] of Object.entries(arrays)) found[name] = { shape, data: decode(kind, shape, buffer, 8 + length + offset) };
    return found;
  };
  return { answers, state, tensors: read };
}
