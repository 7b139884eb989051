// Updates a part of the page in place, so that focus, scrolling and open details stay.
const KEPT = new Set(["open", "aria-expanded"]);

export function morph(now, next, hold) {
  if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName) {
    now.replaceWith(next.cloneNode(true));
    return;
  }
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
    return;
  }
  if (now.isEqualNode(next) || isAhead(now, next)) return;
  copyAttributes(now, next);
  if (isKeyed(now) || isKeyed(next)) morphRows(now, next, hold);
  else morphChildren(now, next, hold);
}

// A stream may have brought more than the server had when it rendered the page.
function isAhead(now, next) {
  return Boolean(now.dataset.output) && now.dataset.output === next.dataset.output && Number(now.dataset.after) >= Number(next.dataset.after);
}

function copyAttributes(now, next) {
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && !KEPT.has(name)) now.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (!KEPT.has(name) && now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
}

function morphChildren(now, next, hold) {
  const olds = [...now.childNodes];
  const news = [...next.childNodes];
  news.forEach((each, place) => {
    if (place < olds.length) morph(olds[place], each, hold);
    else now.append(each.cloneNode(true));
  });
  for (const each of olds.slice(news.length)) each.remove();
}

function isKeyed(element) {
  return element.firstElementChild?.dataset?.key !== undefined;
}

// Rows are identified by their keys. While the user is on them they change but do not appear, leave or move.
function morphRows(now, next, hold) {
  const olds = new Map([...now.children].map((each) => [each.dataset.key, each]));
  if (hold && hold.isInUse(now)) {
    let fresh = 0;
    for (const each of next.children) {
      const old = olds.get(each.dataset.key);
      if (old) morph(old, each, hold);
      else fresh += 1;
    }
    hold.waiting += fresh;
    return;
  }
  let place = null;
  for (const each of next.children) {
    const old = olds.get(each.dataset.key);
    let row = each.cloneNode(true);
    if (old) {
      olds.delete(each.dataset.key);
      morph(old, each, hold);
      row = old;
    }
    const after = place ? place.nextSibling : now.firstChild;
    if (after !== row) now.insertBefore(row, after);
    place = row;
  }
  for (const each of [...now.childNodes]) {
    if (each.nodeType !== Node.ELEMENT_NODE || olds.get(each.dataset.key) === each) each.remove();
  }
}
