// Choosing rows: one, a page, or everything the filter finds.
import { say } from "./said.js";

export function startChoosing() {
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("[data-choose]");
    if (!form) return;
    if (event.target.matches("[data-all]")) {
      for (const each of rows(form)) each.checked = event.target.checked;
    }
    widen(form, false);
    tellChoice();
  });
  document.addEventListener("click", (event) => {
    const form = event.target.closest?.("[data-choose]");
    if (!form) return;
    if (event.target.closest("[data-widen]")) widen(form, true);
    else if (event.target.closest("[data-none]")) {
      for (const each of rows(form)) each.checked = false;
      widen(form, false);
    } else return;
    tellChoice();
    document.dispatchEvent(new Event("holdfast:chosen"));
  });
  tellChoice();
}

export function rows(form) {
  return form.querySelectorAll("tbody input[name=id]");
}

export function chosen(form) {
  return [...rows(form)].filter((each) => each.checked).map((each) => each.value);
}

function widen(form, everything) {
  form.dataset.everything = everything ? "yes" : "";
}

// Without a filter everything is meant, which nobody should choose unawares.
export function wholeOf(form, all) {
  const filter = form.elements.filter.value;
  return filter ? `${all} that ${filter} finds` : `${all} jobs there are`;
}

export function tellChoice() {
  for (const form of document.querySelectorAll("[data-choose]")) {
    const ids = chosen(form);
    const all = form.querySelector("[data-all]");
    const bar = form.querySelector(".bulk");
    if (!all || !bar) continue;
    all.checked = ids.length > 0 && ids.length === rows(form).length;
    all.indeterminate = ids.length > 0 && !all.checked;
    bar.hidden = ids.length === 0;
    const everything = form.dataset.everything === "yes";
    const words = everything ? wholeOf(form, "All") : `${ids.length} selected`;
    const count = bar.querySelector("[data-count]");
    if (count.textContent !== words) {
      count.textContent = words;
      if (ids.length) say(words);
    }
    const wide = bar.querySelector("[data-widen]");
    if (wide) wide.hidden = everything || !all.checked;
  }
}
