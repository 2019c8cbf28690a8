// What a saved file holds: JSON, gzipped, in base64. Tensors are in it as base64, too; see page/bundle.py, which writes it.

async function gunzip(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** {answers, tensors} of the embedded text. */
export async function readSaved(base64) {
  return JSON.parse(new TextDecoder().decode(await gunzip(base64)));
}
