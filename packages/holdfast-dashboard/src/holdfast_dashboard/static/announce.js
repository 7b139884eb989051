// Tells screen readers about changes that the user did not make.
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region && region.textContent !== text) region.textContent = text;
}
