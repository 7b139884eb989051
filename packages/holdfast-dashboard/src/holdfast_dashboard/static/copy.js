// Buttons that copy a text, such as an id.
import { announce } from "./announce.js";

export function startCopy() {
  showCopyButtons();
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const done = await copy(button.dataset.copy);
    button.textContent = done ? "copied" : "not copied";
    announce(button.textContent);
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
}

// A part of the page that was refreshed has its buttons hidden again.
export function showCopyButtons() {
  for (const each of document.querySelectorAll("[data-copy]")) each.hidden = false;
}

// Browsers give pages without TLS no clipboard; the old way works there.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
