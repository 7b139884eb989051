// Draws rows again when they changed, and submits the buttons without leaving the page.
"use strict";

const INTERVAL_MS = 1000;
const rows = document.getElementById("rows");
const note = document.getElementById("note");

function draw(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const focused = document.activeElement?.id;
  fresh.querySelectorAll("tbody").forEach((body, position) => {
    const mine = rows.querySelectorAll("tbody")[position];
    const known = new Map([...mine.rows].map((row) => [row.id, row]));
    // Rows that are the same stay the same elements, so nothing moves under the hand.
    mine.replaceChildren(...[...body.rows].map((row) => {
      const old = known.get(row.id);
      return old && old.isEqualNode(row) ? old : document.adoptNode(row);
    }));
  });
  if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
}

async function look() {
  try {
    const answer = await fetch("/rows");
    if (answer.redirected) return void location.reload();
    if (answer.ok) draw(await answer.text());
  } catch {
    note.textContent = "The application does not answer.";
  }
}

async function submit(form) {
  const body = new URLSearchParams(new FormData(form));
  const answer = await fetch(form.action, { method: "POST", body });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  note.textContent = answer.ok
    ? page.getElementById("note")?.textContent ?? ""
    : "That did not work.";
  note.classList.toggle("bad", !answer.ok);
  if (answer.ok && form.closest("details")) form.reset();
  await look();
}

if (rows) {
  document.addEventListener("submit", (event) => {
    if (!event.target.hasAttribute("data-live")) return;
    event.preventDefault();
    submit(event.target);
  });
  setInterval(() => { if (!document.hidden) look(); }, INTERVAL_MS);
}
