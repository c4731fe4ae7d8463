// Pictures of a session, decoded from the bytes that the gateway serves for the key, and drawn on canvases: the page gets no address of one,
// and bytes that are no picture draw nothing.
import {ask, embedded} from "./api.js";
import {h, number} from "./dom.js";

const TYPES = {png: "image/png", jpeg: "image/jpeg", webp: "image/webp", gif: "image/gif", bmp: "image/bmp"};
const SIDE_MAX = 256;
const PIXELS_MAX = 1 << 24;
const KEPT = 128;
const decoded = new Map();

// Sides that fit into a box, in whole pixels.
export function fitted(row, most = SIDE_MAX) {
  const scale = Math.min(1, most / row.width, most / row.height);
  return [Math.max(1, Math.round(row.width * scale)), Math.max(1, Math.round(row.height * scale))];
}

async function decode(session, row) {
  const [resizeWidth, resizeHeight] = fitted(row);
  const bytes = await (await ask(`/sessions/${session}/media/${row.sha256}`, {cache: "default"})).arrayBuffer();
  // as engines see it: the orientation is not applied
  return createImageBitmap(new Blob([bytes], {type: TYPES[row.format]}), {imageOrientation: "none", resizeWidth, resizeHeight, resizeQuality: "medium"});
}

// A promise of the bitmap; of null where there is none (a saved page, a very large picture, bytes that cannot be decoded).
export function bitmapOf(session, row) {
  if (embedded || !TYPES[row.format] || row.width * row.height > PIXELS_MAX) return Promise.resolve(null);
  if (!decoded.has(row.sha256)) {
    if (decoded.size >= KEPT) decoded.delete(decoded.keys().next().value);
    decoded.set(row.sha256, decode(session, row).catch(() => null));
  }
  return decoded.get(row.sha256);
}

// The picture with what is known of it. row: {sha256, format, width, height, bytes}.
export function pictureBox(session, row) {
  const [width, height] = fitted(row);
  const size = `${number(row.width)} × ${number(row.height)}`;
  const canvas = h("canvas", {width, height, role: "img", "aria-label": `A picture of ${size} pixels`});
  bitmapOf(session, row).then(bitmap => {
    if (!bitmap) return canvas.remove();
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    canvas.dataset.drawn = "yes";
  });
  return h("figure.picture", canvas, h("figcaption.quiet", `${row.format}, ${size}, ${number(row.bytes)} bytes`));
}
