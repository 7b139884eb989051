// Suggests terms while a filter is typed: keys, states and the names of types.
export function startSuggestions() {
  const field = document.querySelector("#filter[list]");
  if (!field) return;
  const known = { keys: field.dataset.keys.split(" "), states: field.dataset.states.split(" "), types: [] };
  field.addEventListener("focus", async () => { known.types = await typeNames(field.dataset.types); }, { once: true });
  field.addEventListener("input", () => show(field, suggestions(field.value, known)));
}

async function typeNames(url) {
  try {
    const response = await fetch(url);
    return response.ok ? (await response.json()).items.map((each) => each.type) : [];
  } catch {
    return [];
  }
}

// A browser offers what contains the whole text, so each suggestion begins with the text before the last term.
export function suggestions(text, known) {
  const start = text.lastIndexOf(" ") + 1;
  const before = text.slice(0, start);
  const [key, sign, value] = text.slice(start).split(/([:<>]=?)/);
  if (sign === undefined) return known.keys.filter((each) => each.startsWith(key)).map((each) => before + each);
  const values = { state: known.states, type: known.types }[key] || [];
  const found = values.filter((each) => each.startsWith(value) && each !== value);
  return found.slice(0, 20).map((each) => `${before}${key}${sign}${each}`);
}

function show(field, texts) {
  const options = texts.map((each) => {
    const option = document.createElement("option");
    option.value = each;
    return option;
  });
  field.list.replaceChildren(...options);
}
