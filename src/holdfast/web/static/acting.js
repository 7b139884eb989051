// Changes: asked for once more in a dialog, made in batches where there are many, with their progress.
import { chosen, wholeOf } from "./choosing.js";
import { say } from "./said.js";

const BATCH = 100;
const MOST = 10000;

export function startActing() {
  const dialog = document.getElementById("ask");
  if (!dialog) return;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-act]")) return;
    event.preventDefault();
    ask(dialog, form, event.submitter);
  });
  dialog.querySelector("[data-no]").addEventListener("click", () => dialog.close());
}

function ask(dialog, form, button) {
  const wide = form.dataset.everything === "yes";
  const ids = form.matches("[data-choose]") ? chosen(form) : null;
  const how = wide ? wholeOf(form, "all") : ids && `${ids.length} ${ids.length === 1 ? "job" : "jobs"}`;
  dialog.querySelector("h2").textContent = said(form, "ask", button).replace("{these}", how || "");
  dialog.querySelector("[data-more]").textContent = said(form, "more", button);
  dialog.querySelector("[data-rate]").hidden = !said(form, "rated", button);
  for (const each of dialog.querySelectorAll("input")) each.value = "";
  const progress = dialog.querySelector("progress");
  progress.hidden = true;
  const yes = dialog.querySelector("[data-yes]");
  yes.textContent = button.textContent.trim();
  yes.disabled = false;
  yes.onclick = async () => {
    yes.disabled = true;
    const fields = common(dialog, form, button);
    if (ids === null) return send(form, button, fields);
    progress.hidden = false;
    return sendAll(form, button, fields, wide ? null : ids, progress);
  };
  dialog.showModal();
  document.dispatchEvent(new Event("holdfast:asked"));
  dialog.querySelector("input[name=reason]").focus();
}

// The form brings each button's question along for when no script asks it.
function said(form, word, button) {
  return form.elements[`${word}:${button.value}`]?.value || "";
}

function common(dialog, form, button) {
  const fields = new URLSearchParams(new FormData(form));
  for (const name of [...fields.keys()]) if (name === "id" || name.includes(":")) fields.delete(name);
  if (!form.matches("[data-choose]")) {
    for (const each of form.querySelectorAll("input[name=id]")) fields.append("id", each.value);
  }
  if (button.name) fields.set(button.name, button.value);
  fields.set("reason", dialog.querySelector("input[name=reason]").value);
  if (said(form, "rated", button)) fields.set("rate", dialog.querySelector("input[name=rate]").value);
  return fields;
}

// One thing: an ordinary form post, whose answer is the next page.
function send(form, button, fields) {
  const real = document.createElement("form");
  real.method = "post";
  real.action = button.getAttribute("formaction") || form.action;
  for (const [name, value] of fields) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    real.append(field);
  }
  document.body.append(real);
  real.submit();
}

// Many: batch after batch, so that progress is seen and no request is long.
async function sendAll(form, button, fields, ids, progress) {
  const target = button.getAttribute("formaction") || form.action;
  const total = { moved: 0, left: 0 };
  let after = "";
  for (let done = 0; done < (ids ? ids.length : MOST); done += BATCH) {
    const part = new URLSearchParams(fields);
    if (ids) for (const id of ids.slice(done, done + BATCH)) part.append("id", id);
    else part.set("after", after);
    if (!ids) part.set("everything", "yes");
    const told = await post(target, part);
    if (told.error) return end({ ...total, error: told.error });
    total.moved += told.moved;
    total.left += told.left;
    if (ids) progress.value = Math.min(1, (done + BATCH) / ids.length);
    else progress.removeAttribute("value");
    say(`${total.moved} done`);
    if (!ids && !told.next) break;
    after = told.next || "";
  }
  return end({ ...total, done: fields.get("move"), more: !ids && after ? "yes" : "" });
}

async function post(target, body) {
  try {
    const answer = await fetch(target, { method: "POST", body, headers: { Accept: "application/json" } });
    const told = await answer.json();
    return answer.ok ? told : { error: told.detail || told.title || "it was refused" };
  } catch {
    return { error: "the server could not be reached; what was under way may have been done" };
  }
}

function end({ error, ...told }) {
  if (error) {
    const dialog = document.getElementById("ask");
    dialog.querySelector("[data-more]").textContent = `${told.moved} done, then: ${error}`;
    say(error);
    return;
  }
  const back = new URL(location.href);
  for (const [name, value] of Object.entries(told)) back.searchParams.set(name, value);
  location.assign(back);
}
