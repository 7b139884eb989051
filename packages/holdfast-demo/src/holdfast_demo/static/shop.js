// Polls the shop's figures, and submits the buttons without leaving the page.
"use strict";

const $ = (id) => document.getElementById(id);

function show(state) {
  $("bar").max = Math.max(1, state.total);
  $("bar").value = state.paid;
  for (const name of ["paid", "total", "lost", "paid_twice", "recovered", "shipped", "mailed", "worker"]) {
    $(name).textContent = state[name];
  }
  $("rate").textContent = Math.round(state.per_second);
  for (const name of ["lost", "paid_twice"]) $(name).classList.toggle("bad", state[name] > 0);
  $("gateway").textContent = state.gateway_is_down ? "Fix payments" : "Make payments fail";
  $("pause").textContent = state.is_paused ? "Resume" : "Pause";
  $("countdown").textContent = state.recovering
    .map((each) => `${each.jobs} jobs held by ${each.worker}: lease expires in ${Math.ceil(each.seconds)} s`)
    .join(" · ");
  $("notes").replaceChildren(...state.notes.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

async function look() {
  try {
    show(await (await fetch("/state")).json());
  } catch {
    $("countdown").textContent = "The demo has stopped.";
  }
}

document.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  await fetch(event.submitter.formAction, { method: "POST" });
  await look();
});

look();
setInterval(look, 500);
