// Refreshes the page's live parts when the server hints at a change, unless that would disturb the user.
import { announce } from "./announce.js";
import { showCopyButtons } from "./copy.js";
import { morph } from "./morph.js";
import { followOutput, isOutputOfOthers } from "./output.js";
import { showSelection } from "./selection.js";
import { follow } from "./stream.js";
import { setClock, showLocalTimes, updateTimes } from "./times.js";

const MIN_INTERVAL_MS = 1000;

const state = { requested: false, refreshing: false, last: 0, timer: 0, connected: false, stopped: false, signedOut: false };

export function startLive() {
  if (!document.querySelector("[data-live]")) return;
  document.getElementById("live")?.removeAttribute("hidden");
  follow(() => document.body.dataset.stream, { hint: onHint }, onConnectionChange, true);
  for (const kind of ["visibilitychange", "change", "close", "holdfast:selection", "holdfast:dialog"]) {
    document.addEventListener(kind, () => { showStatus(); schedule(); }, true);
  }
  document.getElementById("new-rows")?.addEventListener("click", () => refresh(true));
  document.getElementById("live-switch")?.addEventListener("click", () => {
    state.stopped = !state.stopped;
    showStatus();
    followOutput(state.stopped, requestRefresh);
    if (!state.stopped) requestRefresh();
  });
  showStatus();
  followOutput(state.stopped, requestRefresh);
}

// Why nothing is refreshed now, or an empty text.
function pauseReason() {
  if (state.stopped) return "Paused";
  if (document.hidden) return "Paused: tab hidden";
  if (document.querySelector("dialog[open]")) return "Paused: dialog open";
  const selected = document.querySelectorAll("[data-select] tbody input:checked").length;
  return selected ? `Paused: ${selected} selected` : "";
}

// A stream may have ended because the token was revoked: the next refresh shows that.
function onConnectionChange(isConnected) {
  state.connected = isConnected;
  showStatus();
  requestRefresh();
}

function onHint(event) {
  if (!isOutputOfOthers(JSON.parse(event.data))) requestRefresh();
}

function requestRefresh() {
  state.requested = true;
  schedule();
}

function schedule() {
  if (!state.requested || state.refreshing || state.timer || pauseReason()) return;
  const pause = Math.max(0, state.last + MIN_INTERVAL_MS - Date.now());
  state.timer = setTimeout(() => { state.timer = 0; if (!pauseReason()) refresh(false); }, pause);
}

async function refresh(isManual) {
  state.requested = false;
  state.refreshing = true;
  try {
    const response = await fetch(location.href, { headers: { "Holdfast-Part": "live" } });
    state.signedOut = response.status === 401;
    showStatus();
    if (response.ok && (isManual || !pauseReason())) show(await response.text(), isManual);
  } catch {
    // The stream shows that the server is unreachable, and hints again when it is back.
  } finally {
    state.refreshing = false;
    state.last = Date.now();
    document.body.dataset.refreshes = String(Number(document.body.dataset.refreshes || 0) + 1);
    schedule();
  }
}

function show(text, isManual) {
  const next = new DOMParser().parseFromString(text, "text/html");
  const hold = { waiting: 0, isInUse: (rows) => !isManual && isInUse(rows) };
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = next.getElementById(part.id);
    if (fresh) morph(part, document.importNode(fresh, true), hold);
  }
  setClock(Number(next.body.dataset.now));
  updateTimes();
  showLocalTimes();
  showCopyButtons();
  showSelection();
  followOutput(state.stopped, requestRefresh);
  showNewRows(hold.waiting);
}

function isInUse(rows) {
  if (rows.nodeName !== "TBODY") return false;
  return rows.matches(":hover") || rows.contains(document.activeElement);
}

function showNewRows(count) {
  const button = document.getElementById("new-rows");
  if (!button) return;
  button.parentElement.hidden = count === 0;
  if (count === 0) return;
  button.textContent = `Show ${count} new ${count === 1 ? "row" : "rows"}`;
  announce(button.textContent);
}

function showStatus() {
  const place = document.getElementById("live");
  if (!place) return;
  const reason = pauseReason();
  if (state.signedOut) showMode(place, "off", "Signed out", "reload the page to sign in");
  else if (!state.connected) showMode(place, "off", "Reconnecting", "this page may be out of date");
  else showMode(place, reason ? "held" : "on", reason || "Live", "");
  const button = document.getElementById("live-switch");
  if (!button) return;
  // What pauses by itself goes on by itself.
  button.hidden = Boolean(reason) && !state.stopped;
  button.textContent = state.stopped ? "resume" : "pause";
  button.setAttribute("aria-label", state.stopped ? "Resume live updates" : "Pause live updates");
}

export function showMode(place, mode, word, reason) {
  place.dataset.mode = mode;
  place.querySelector("[data-word]").textContent = word;
  place.title = reason;
}
