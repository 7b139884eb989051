// Draws again what changed, every second.
"use strict";

const INTERVAL_MS = 1000;
const rows = document.getElementById("rows");
const note = document.getElementById("note");

function draw(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  rows.querySelector("#totals").replaceWith(document.adoptNode(fresh.querySelector("#totals")));
  fresh.querySelectorAll("tbody").forEach((body) => {
    const mine = document.getElementById(body.id);
    const known = new Map([...mine.rows].map((row) => [row.id, row]));
    // Rows that are the same stay the same elements, so a selection in them stays too.
    mine.replaceChildren(...[...body.rows].map((row) => {
      const old = known.get(row.id);
      return old && old.isEqualNode(row) ? old : document.adoptNode(row);
    }));
  });
}

async function look() {
  try {
    const answer = await fetch("/rows");
    if (!answer.ok) throw new Error(answer.statusText);
    draw(await answer.text());
    note.textContent = "";
  } catch {
    note.textContent = "The application does not answer.";
  }
}

setInterval(() => { if (!document.hidden) look(); }, INTERVAL_MS);
