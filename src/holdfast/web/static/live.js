// Fetches the page's live parts again when the server hints at a change, unless that would be in somebody's way.
import { tellChoice } from "./choosing.js";
import { morph } from "./morph.js";
import { say } from "./said.js";
import { follow } from "./stream.js";
import { setClock, tellTimes } from "./times.js";

const SHORTEST_PAUSE_MS = 1000;

const state = { wanted: false, underWay: false, last: 0, timer: 0, connected: false, stopped: false, signedOut: false };

export function startLive() {
  if (!document.querySelector("[data-live]")) return;
  document.getElementById("live")?.removeAttribute("hidden");
  follow(document.body.dataset.stream, "hint", want, connected, true);
  for (const kind of ["visibilitychange", "change", "close", "holdfast:chosen", "holdfast:asked"]) {
    document.addEventListener(kind, () => { tell(); plan(); }, true);
  }
  document.getElementById("fresh")?.addEventListener("click", () => refresh(true));
  document.getElementById("live-switch")?.addEventListener("click", () => {
    state.stopped = !state.stopped;
    tell();
    if (!state.stopped) want();
  });
  tell();
}

// The reason why nothing is refreshed now, or an empty text.
export function held() {
  if (state.stopped) return "paused by you";
  if (document.hidden) return "paused: tab hidden";
  if (document.querySelector("dialog[open]")) return "paused: dialog open";
  const chosen = document.querySelectorAll("[data-choose] tbody input:checked").length;
  return chosen ? `paused: ${chosen} selected` : "";
}

// A stream that broke may have been ended because whoever reads may no longer: the next refresh tells.
function connected(is) {
  state.connected = is;
  tell();
  want();
}

function want() {
  state.wanted = true;
  plan();
}

function plan() {
  if (!state.wanted || state.underWay || state.timer || held()) return;
  const pause = Math.max(0, state.last + SHORTEST_PAUSE_MS - Date.now());
  state.timer = setTimeout(() => { state.timer = 0; if (!held()) refresh(false); }, pause);
}

async function refresh(asked) {
  state.wanted = false;
  state.underWay = true;
  try {
    const answer = await fetch(location.href, { headers: { "Holdfast-Part": "live" } });
    state.signedOut = answer.status === 401;
    tell();
    if (answer.ok && (asked || !held())) show(await answer.text(), asked);
  } catch {
    // The stream's own state says that the server is away; it hints again when it is back.
  } finally {
    state.underWay = false;
    state.last = Date.now();
    document.body.dataset.refreshes = String(Number(document.body.dataset.refreshes || 0) + 1);
    plan();
  }
}

function show(text, asked) {
  const next = new DOMParser().parseFromString(text, "text/html");
  const hold = { waiting: 0, under: (rows) => !asked && isUnderHand(rows) };
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = next.getElementById(part.id);
    if (fresh) morph(part, document.importNode(fresh, true), hold);
  }
  setClock(Number(next.body.dataset.now));
  tellTimes();
  tellChoice();
  tellWaiting(hold.waiting);
}

function isUnderHand(rows) {
  if (rows.nodeName !== "TBODY") return false;
  return rows.matches(":hover") || rows.contains(document.activeElement);
}

function tellWaiting(count) {
  const button = document.getElementById("fresh");
  if (!button) return;
  button.parentElement.hidden = count === 0;
  if (count === 0) return;
  button.textContent = `${count} new ${count === 1 ? "row" : "rows"}, show`;
  say(button.textContent);
}

function tell() {
  const place = document.getElementById("live");
  if (!place) return;
  const reason = held();
  if (state.signedOut) showMode(place, "off", "Signed out", "load the page again to sign in");
  else if (!state.connected) showMode(place, "off", "Reconnecting", "what is shown may be old");
  else showMode(place, reason ? "held" : "on", reason ? "Paused" : "Live", reason);
  const button = document.getElementById("live-switch");
  if (button) button.setAttribute("aria-pressed", String(state.stopped));
}

export function showMode(place, mode, word, reason) {
  place.dataset.mode = mode;
  place.querySelector("[data-word]").textContent = word;
  place.title = reason;
}
