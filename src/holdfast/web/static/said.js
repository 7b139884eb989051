// Tells those who listen to the page what changed without their doing.
export function say(text) {
  const place = document.getElementById("said");
  if (place && place.textContent !== text) place.textContent = text;
}
