// The event stream, newest on top; texts are written as texts, never as markup.
const MOST = 300;

export function startTail() {
  const list = document.getElementById("tail");
  if (!list) return;
  const template = document.getElementById("tail-line");
  const empty = document.getElementById("tail-empty");
  const source = new EventSource(list.dataset.stream);
  source.addEventListener("job", (event) => {
    if (document.getElementById("tail-hold").checked) return;
    empty.hidden = true;
    list.prepend(line(template, JSON.parse(event.data), list.dataset.jobs));
    while (list.children.length > MOST) list.lastElementChild.remove();
  });
  addEventListener("pagehide", () => source.close());
}

function line(template, job, jobs) {
  const item = template.content.firstElementChild.cloneNode(true);
  item.querySelector("time").textContent = String(job.finished_at || job.started_at || job.created_at).slice(11, 19);
  const states = item.querySelectorAll("[data-state]");
  for (const each of states) each.hidden = each.dataset.state !== job.state;
  const link = item.querySelector("a");
  link.href = `${jobs}/${encodeURIComponent(job.id)}`;
  link.textContent = job.type;
  item.querySelector("[data-note]").textContent = (job.error || job.worker || "").split("\n")[0];
  return item;
}
