// Waits for a chain as a program would, by the API's own endpoint, and shows the page anew once it has ended.
const SHORTEST_PAUSE_MS = 1000;

export function startWaiting() {
  const place = document.querySelector("[data-wait]");
  if (!place) return;
  place.hidden = false;
  place.querySelector("button").addEventListener("click", () => wait(place));
}

async function wait(place) {
  const button = place.querySelector("button");
  button.disabled = true;
  tell(place, "Waiting until it ends…");
  try {
    while ((await fetch(place.dataset.wait)).status === 202) {
      await new Promise((go) => { setTimeout(go, SHORTEST_PAUSE_MS); });
    }
    location.reload();
  } catch {
    tell(place, "The server could not be reached.");
    button.disabled = false;
  }
}

function tell(place, words) {
  place.querySelector("[role=status]").textContent = words;
}
