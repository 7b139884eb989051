// A button on every block of code that copies it. Drawings and sample output, which are plain text, have none.
const COPIED_MS = 2000;

function addButton(block) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-code";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const code = block.querySelector("pre").textContent.replace(/\n$/, "");
    try {
      await navigator.clipboard.writeText(code);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, COPIED_MS);
  });
  block.append(button);
}

// A page that was opened without TLS from another machine has no clipboard.
if (navigator.clipboard) {
  for (const block of document.querySelectorAll("div[class*='highlight-']:not(.highlight-text) > div.highlight")) {
    addButton(block);
  }
}
