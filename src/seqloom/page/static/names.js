// What sites are called. Layers and heads are counted from 0, as in the names of sites: encoder.2.head.5.

/** "layer 2" for the layer encoder.2. */
export function layerName(layer) {
  const number = /\.(\d+)$/.exec(layer.name)?.[1];
  return number === undefined ? "" : `layer ${number}`;
}

/** "Encoder, layer 2, head 5" for a site of a stack. */
export function nameOf(stack, site) {
  const layer = stack.layers.find((one) => one.sites.includes(site));
  const name = stack.name[0].toUpperCase() + stack.name.slice(1);
  if (!layer) return site;
  const last = site.split(".").at(-1);
  const unit = layer.sites.length === 1 && !/^\d+$/.test(last) ? null : /^\d+$/.test(last) ? `head ${last}` : last;
  return [name, /\.\d+$/.test(layer.name) ? layerName(layer) : null, unit].filter(Boolean).join(", ");
}
