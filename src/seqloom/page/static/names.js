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

/** A change in words. */
export function changeName(change) {
  switch (change.kind) {
    case "ablate": return change.by === "mean" ? `${change.site} replaced by its mean` : `${change.site} switched off`;
    case "scale": return `${change.site} × ${change.factor}`;
    case "mask": return `word ${change.index + 1} of the ${change.side} masked`;
    case "swap": return change.text === "" ? `word ${change.index + 1} of the ${change.side} left out` : `word ${change.index + 1} of the ${change.side} is “${change.text}”`;
    default: return `${change.site} taken from another trace`;
  }
}
