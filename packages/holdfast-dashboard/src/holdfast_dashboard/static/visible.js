// Shows characters that would reorder or hide the text around them as escapes, as the server does in its pages.
// oxlint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function visible(text) {
  return text.replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
