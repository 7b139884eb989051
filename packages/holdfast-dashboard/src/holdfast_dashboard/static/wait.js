// Waits for a chain by the API's own endpoint and reloads the page once it has ended.
const PAUSE_MS = 1000;

export function startWait() {
  const place = document.querySelector("[data-wait]");
  if (!place) return;
  place.hidden = false;
  place.querySelector("button").addEventListener("click", () => wait(place));
}

async function wait(place) {
  const button = place.querySelector("button");
  button.disabled = true;
  showStatus(place, "Waiting for the result…");
  try {
    while ((await fetch(place.dataset.wait)).status === 202) {
      await new Promise((resolve) => { setTimeout(resolve, PAUSE_MS); });
    }
    location.reload();
  } catch {
    showStatus(place, "The server could not be reached.");
    button.disabled = false;
  }
}

function showStatus(place, text) {
  place.querySelector("[role=status]").textContent = text;
}
