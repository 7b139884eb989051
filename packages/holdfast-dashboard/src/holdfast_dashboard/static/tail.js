// The stream of changes, newest on top; texts are set as text, never as markup.
import { showMode } from "./live.js";
import { follow } from "./stream.js";
import { showLocalTimes } from "./times.js";
import { visible } from "./visible.js";

const MOST = 300;

export function startTail() {
  const list = document.getElementById("tail");
  if (!list) return;
  // This page has its own pause switch.
  document.getElementById("live-switch").remove();
  const template = document.getElementById("tail-line");
  const empty = document.getElementById("tail-empty");
  empty.hidden = false;
  const onJob = (event) => {
    if (document.getElementById("tail-pause").checked) return;
    const job = JSON.parse(event.data);
    // A stream that reconnects starts with lines that are here already.
    if (list.querySelector(`[data-key="${CSS.escape(keyOf(job))}"]`)) return;
    empty.hidden = true;
    list.prepend(line(template, job, list.dataset.jobs));
    showLocalTimes();
    while (list.children.length > MOST) list.lastElementChild.remove();
  };
  follow(() => list.dataset.stream, { job: onJob }, showStatus);
}

function showStatus(isConnected) {
  const place = document.getElementById("live");
  place.hidden = false;
  if (isConnected) showMode(place, "on", "Live", "");
  else showMode(place, "off", "Reconnecting", "changes are not shown meanwhile");
}

function keyOf(job) {
  return `${job.id} ${job.state} ${job.attempt}`;
}

function line(template, job, jobs) {
  const item = template.content.firstElementChild.cloneNode(true);
  item.dataset.key = keyOf(job);
  const time = item.querySelector("time");
  time.dateTime = job.finished_at || job.started_at || job.created_at;
  time.textContent = time.dateTime.slice(11, 19);
  const states = item.querySelectorAll("[data-state]");
  for (const each of states) each.hidden = each.dataset.state !== job.state;
  const link = item.querySelector("a");
  link.href = `${jobs}/${encodeURIComponent(job.id)}`;
  link.textContent = visible(job.type);
  item.querySelector("[data-note]").textContent = visible((job.error || job.worker || "").split("\n")[0]);
  return item;
}
