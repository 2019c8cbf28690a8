// Reading safetensors: eight bytes with the length of a JSON header, the header, the numbers.

const TYPES = { F32: Float32Array, F64: Float64Array, U8: Uint8Array, I32: Int32Array, U16: Uint16Array };

/** {name: {shape, data}, …} and, as `metadata`, what the header says besides. */
export function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = { metadata: Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, JSON.parse(value)])) };
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(entries)) {
    if (!(dtype in TYPES)) throw new Error(`The server sent numbers of type ${dtype}, which this page cannot read.`);
    // A copy, because a typed array must begin at a multiple of its size.
    tensors[name] = { shape, data: new TYPES[dtype](buffer.slice(8 + length + begin, 8 + length + end)) };
  }
  return tensors;
}
