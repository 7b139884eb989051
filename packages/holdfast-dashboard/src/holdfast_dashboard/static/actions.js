// Changes: confirmed in a dialog, made in batches where there are many, with their progress.
import { announce } from "./announce.js";
import { countMatching, describeMatching, selectedIds } from "./selection.js";
import { visible } from "./visible.js";

const BATCH = 100;
const MOST = 10000;

let onYes;

export function startActions() {
  const dialog = document.getElementById("confirm");
  if (!dialog) return;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-confirm]")) return;
    event.preventDefault();
    openDialog(dialog, form, event.submitter);
  });
  dialog.querySelector("[data-no]").addEventListener("click", () => dialog.close());
  dialog.querySelector("[data-yes]").addEventListener("click", () => onYes());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input")) dialog.querySelector("[data-yes]").click();
  });
}

async function openDialog(dialog, form, button) {
  const everything = form.dataset.everything === "yes";
  if (everything) await countMatching(form);
  const ids = form.matches("[data-select]") ? selectedIds(form) : null;
  const these = everything ? describeMatching(form, "all") : ids && `${ids.length} ${ids.length === 1 ? "job" : "jobs"}`;
  dialog.querySelector("h2").textContent = textOf(form, "ask", button).replace("{these}", these || "");
  dialog.querySelector("[data-more]").textContent = textOf(form, "more", button);
  dialog.querySelector("[data-rate]").hidden = !textOf(form, "rated", button);
  for (const each of dialog.querySelectorAll("input")) each.value = "";
  const progress = dialog.querySelector("progress");
  progress.hidden = true;
  showError(dialog, "");
  const yes = dialog.querySelector("[data-yes]");
  yes.textContent = button.textContent.trim();
  yes.className = textOf(form, "danger", button) ? "primary danger" : "primary";
  yes.disabled = false;
  onYes = async () => {
    yes.disabled = true;
    showError(dialog, "");
    const fields = formFields(dialog, form, button);
    progress.hidden = ids === null;
    const error = ids === null
      ? await submit(form, button, fields)
      : await submitBatches(form, button, fields, everything ? null : ids, progress);
    if (!error) return;
    // What was typed stays, so that it can be corrected.
    progress.hidden = true;
    yes.disabled = false;
    showError(dialog, error);
  };
  dialog.showModal();
  document.dispatchEvent(new Event("holdfast:dialog"));
  dialog.querySelector("input[name=reason]").focus();
}

// The form has each button's question, for when no script asks it.
function textOf(form, word, button) {
  return form.elements[`${word}:${button.value}`]?.value || "";
}

function formFields(dialog, form, button) {
  const fields = new URLSearchParams(new FormData(form));
  for (const name of [...fields.keys()]) if (name === "id" || name.includes(":")) fields.delete(name);
  if (!form.matches("[data-select]")) {
    for (const each of form.querySelectorAll("input[name=id]")) fields.append("id", each.value);
  }
  if (button.name) fields.set(button.name, button.value);
  fields.set("reason", dialog.querySelector("input[name=reason]").value);
  if (textOf(form, "rated", button)) fields.set("rate", dialog.querySelector("input[name=rate]").value);
  return fields;
}

// One thing: the response names the next page. Return an error, if there is one.
async function submit(form, button, fields) {
  const result = await post(button.getAttribute("formaction") || form.action, fields);
  if (!result.error) location.assign(result.url);
  return result.error;
}

// Many: batch after batch, so that there is progress and no request is long. Return an error, if there is one.
async function submitBatches(form, button, fields, ids, progress) {
  const target = button.getAttribute("formaction") || form.action;
  const total = { moved: 0, left: 0 };
  const expected = ids ? ids.length : Math.min(MOST, Number(form.dataset.total) || 0);
  let after = "";
  let bulk = "";
  let refusal;
  for (let done = 0; done < (ids ? ids.length : MOST); done += BATCH) {
    const part = new URLSearchParams(fields);
    if (ids) for (const id of ids.slice(done, done + BATCH)) part.append("id", id);
    else part.set("after", after);
    if (!ids) part.set("everything", "yes");
    // Every part names the first one's action, so that the audit has one entry for all of them.
    if (bulk) part.set("bulk", bulk);
    const result = await post(target, part);
    if (result.error) return `${total.moved} done, then: ${result.error}`;
    bulk = result.bulk || "";
    total.moved += result.moved;
    total.left += result.left;
    refusal = result.refusal || refusal;
    if (expected) progress.value = Math.min(1, (done + BATCH) / expected);
    else progress.removeAttribute("value");
    announce(`${total.moved} done`);
    after = result.next || "";
    if (!ids && !after) break;
  }
  if (!total.moved && refusal) return textOfProblem(refusal);
  showResult({ ...total, done: fields.get("move"), more: !ids && after ? "yes" : "" });
  return "";
}

async function post(target, body) {
  try {
    const response = await fetch(target, { method: "POST", body, headers: { Accept: "application/json" } });
    const result = await response.json();
    return response.ok ? result : { error: textOfProblem(result) };
  } catch {
    return { error: "the server could not be reached; the last change may have been applied" };
  }
}

function textOfProblem(problem) {
  const text = problem.detail || problem.title || "the request was refused";
  const coded = problem.code ? `${text} (${problem.code})` : text;
  return problem.help ? `${coded}: ${problem.help}` : coded;
}

function showError(dialog, error) {
  const place = dialog.querySelector("[data-error]");
  place.textContent = visible(error);
  place.hidden = !error;
}

function showResult(result) {
  const back = new URL(location.href);
  for (const [name, value] of Object.entries(result)) back.searchParams.set(name, value);
  location.assign(back);
}
