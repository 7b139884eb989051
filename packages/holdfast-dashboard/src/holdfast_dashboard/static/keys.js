// Shortcuts: / for the filter, g and a letter for a page, j and k for rows, x to select one, b for the bulk actions.
const OFF = "holdfast:keys-off";

export function startKeys() {
  let going = false;
  startSwitch();
  document.addEventListener("keydown", (event) => {
    if (isOff() || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (going) {
      going = false;
      document.querySelector(`.rail a[data-key-letter="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    switch (event.key) {
      case "g": going = true; setTimeout(() => { going = false; }, 1500); break;
      case "/": focusFilter(event); break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "b": document.querySelector(".bulk:not([hidden]) button:not([hidden])")?.focus(); break;
      case "Escape": leaveBulk(); break;
      case "x": document.activeElement?.closest("tr")?.querySelector("input[name=id]")?.click(); break;
      default:
    }
  });
}

// Dictation software types letters that are not meant as shortcuts, so they can be turned off.
function startSwitch() {
  const button = document.getElementById("keys-switch");
  const show = () => { button.textContent = isOff() ? "Shortcuts: off" : "Shortcuts: on"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    withStorage((store) => (isOff() ? store.removeItem(OFF) : store.setItem(OFF, "yes")));
    show();
  });
  show();
}

function isOff() {
  return withStorage((store) => store.getItem(OFF)) === "yes";
}

// A browser may forbid storage.
function withStorage(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

function isTyping(target) {
  return target.matches("input:not([type=checkbox]), textarea, select") || target.closest("dialog[open]");
}

function focusFilter(event) {
  const field = document.querySelector("input[type=search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
}

function leaveBulk() {
  if (!document.activeElement?.closest(".bulk")) return;
  document.querySelector("tbody input:checked")?.closest("tr").querySelector("a.row-link")?.focus();
}

function step(by) {
  const links = [...document.querySelectorAll("tbody tr a.row-link")];
  const here = links.indexOf(document.activeElement?.closest("tr")?.querySelector("a.row-link"));
  const next = links[here < 0 ? 0 : Math.min(links.length - 1, Math.max(0, here + by))];
  next?.focus();
}
