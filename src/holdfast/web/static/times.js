// Spans that count by themselves: <time data-since="ms"> upwards, <time data-until="ms"> down to zero.
const SIZES = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

let ahead = 0;

// The server's clock counts, not this machine's.
export function setClock(serverNow) {
  if (Number.isFinite(serverNow)) ahead = serverNow - Date.now();
}

export function spoken(ms) {
  const seconds = Math.max(0, ms) / 1000;
  for (const [size, unit] of SIZES) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return "0 s";
}

export function tellTimes() {
  const now = Date.now() + ahead;
  for (const each of document.querySelectorAll("time[data-since]")) {
    write(each, spoken(now - Number(each.dataset.since)));
  }
  for (const each of document.querySelectorAll("time[data-until]")) {
    write(each, spoken(Number(each.dataset.until) - now));
  }
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function startTimes() {
  setClock(Number(document.body.dataset.now));
  tellTimes();
  setInterval(tellTimes, 1000);
}
