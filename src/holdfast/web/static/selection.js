// Selecting rows: one, a page, or everything that matches the filter.
import { announce } from "./announce.js";

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
    if (event.target.closest("[data-select-matching]")) selectMatching(form, true);
    else if (event.target.closest("[data-clear]")) {
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

// Without a filter every job is meant, which nobody should select unawares.
export function describeMatching(form, all) {
  const filter = form.elements.filter.value;
  return filter ? `${all} jobs matching ${filter}` : `${all} jobs in the database`;
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
      if (ids.length) announce(text);
    }
    const matching = bar.querySelector("[data-select-matching]");
    if (matching) matching.hidden = everything || !page.checked;
  }
}

function rows(form) {
  return form.querySelectorAll("tbody input[name=id]");
}

function selectMatching(form, everything) {
  form.dataset.everything = everything ? "yes" : "";
}
