// Times that keep counting: <time data-since="ms"> up, <time data-until="ms"> down to zero.
const SIZES = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

let offset = 0;

// Times are relative to the server's clock, not this machine's.
export function setClock(serverNow) {
  if (Number.isFinite(serverNow)) offset = serverNow - Date.now();
}

function format(ms) {
  const seconds = Math.max(0, ms) / 1000;
  for (const [size, unit] of SIZES) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return "0 s";
}

export function updateTimes() {
  const now = Date.now() + offset;
  for (const each of document.querySelectorAll("time[data-since]")) {
    write(each, format(now - Number(each.dataset.since)));
  }
  for (const each of document.querySelectorAll("time[data-until]")) {
    write(each, format(Number(each.dataset.until) - now));
  }
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function startTimes() {
  setClock(Number(document.body.dataset.now));
  updateTimes();
  setInterval(updateTimes, 1000);
}
