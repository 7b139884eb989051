// Times that keep counting: <time data-since="ms"> up, <time data-until="ms"> down to zero. Pages are in UTC; the title
// of a time, which shows on hover, is in the reader's zone.
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

// As 2026-01-31 12:00:00 GMT+1; the Swedish way to write a time is the one of ISO 8601.
const CLOCK = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "short" });

export function showLocalTimes() {
  for (const each of document.querySelectorAll("time[datetime]")) each.title = localTime(each.dateTime);
}

function localTime(text) {
  const instant = new Date(text);
  if (Number.isNaN(instant.getTime())) return text;
  const zone = ZONE.formatToParts(instant).find((each) => each.type === "timeZoneName");
  return `${CLOCK.format(instant)} ${zone ? zone.value : ""}`;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function startTimes() {
  setClock(Number(document.body.dataset.now));
  updateTimes();
  showLocalTimes();
  setInterval(updateTimes, 1000);
}
