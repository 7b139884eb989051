// Selecting rows: one, a page, or everything that matches the filter.
import { announce } from "./announce.js";
import { visible } from "./visible.js";

export function startSelection() {
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("[data-select]");
    if (!form) return;
    if (event.target.matches("[data-select-page]")) {
      for (const each of rows(form)) each.checked = event.target.checked;
    }
    selectMatching(form, false);
    showSelection();
  });
  document.addEventListener("click", (event) => {
    const form = event.target.closest?.("[data-select]");
    if (!form) return;
    if (event.target.closest("[data-select-matching]")) {
      selectMatching(form, true);
      countMatching(form).then(showSelection);
    } else if (event.target.closest("[data-clear]")) {
      for (const each of rows(form)) each.checked = false;
      selectMatching(form, false);
    } else return;
    showSelection();
    document.dispatchEvent(new Event("holdfast:selection"));
  });
  showSelection();
}

export function selectedIds(form) {
  return [...rows(form)].filter((each) => each.checked).map((each) => each.value);
}

// Ask how many jobs match, unless that is known; a bulk action names the number before it is confirmed.
export async function countMatching(form) {
  if (form.dataset.total) return;
  try {
    const query = new URLSearchParams({ filter: form.elements.filter.value });
    const response = await fetch(`${form.dataset.countUrl}?${query}`);
    if (!response.ok) return;
    const { count, more } = await response.json();
    form.dataset.total = String(count);
    form.dataset.more = more ? "yes" : "";
  } catch {
    // Without a number the question is asked all the same.
  }
}

// Without a filter every job is meant, which nobody should select unawares.
export function describeMatching(form, all) {
  const filter = visible(form.elements.filter.value);
  const { total, more } = form.dataset;
  const number = total ? ` ${total.replace(/\B(?=(\d{3})+$)/g, "\u202f")}${more ? "+" : ""}` : "";
  const only = all === "All" ? "The only job" : "the only job";
  const jobs = total === "1" && !more ? only : `${all}${number} jobs`;
  return filter ? `${jobs} matching ${filter}` : `${jobs} in the database`;
}

export function showSelection() {
  for (const form of document.querySelectorAll("[data-select]")) {
    const ids = selectedIds(form);
    const page = form.querySelector("[data-select-page]");
    const bar = form.querySelector(".bulk");
    if (!page || !bar) continue;
    page.checked = ids.length > 0 && ids.length === rows(form).length;
    page.indeterminate = ids.length > 0 && !page.checked;
    bar.hidden = ids.length === 0;
    const everything = form.dataset.everything === "yes";
    const text = everything ? describeMatching(form, "All") : `${ids.length} selected`;
    const count = bar.querySelector("[data-count]");
    if (count.textContent !== text) {
      count.textContent = text;
      if (ids.length) announce(`${text}; press b for actions`);
    }
    const states = new Set([...rows(form)].filter((each) => each.checked).map((each) => each.dataset.state));
    for (const each of bar.querySelectorAll("[data-states]")) {
      each.hidden = !everything && !each.dataset.states.split(" ").some((state) => states.has(state));
    }
    for (const each of document.querySelectorAll("[data-skip-to-bulk]")) each.hidden = ids.length === 0;
    const matching = bar.querySelector("[data-select-matching]");
    if (matching) matching.hidden = everything || !page.checked;
  }
}

function rows(form) {
  return form.querySelectorAll("tbody input[name=id]");
}

function selectMatching(form, everything) {
  form.dataset.everything = everything ? "yes" : "";
  form.dataset.total = "";
}
