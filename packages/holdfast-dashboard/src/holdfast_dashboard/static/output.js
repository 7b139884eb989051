// Appends what a job emits to its card as it comes; texts are set as text, never as markup.
import { follow } from "./stream.js";
import { visible } from "./visible.js";

const MAX_CHARACTERS = 20000;
const MAX_LINE = 300;
const HINT = "output:";

const state = { address: "", stop: () => {}, seen: 0, connected: false, queue: [] };

// Follows the card that the page has now, if it is to be followed; called again whenever the page was refreshed.
export function followOutput(isStopped, onEnd) {
  const card = isStopped ? null : findCard();
  const address = card?.dataset.output ?? "";
  // A refresh that moved the card may have brought an older text.
  if (address === state.address && !(card && Number(card.dataset.after) < state.seen)) return;
  state.stop();
  Object.assign(state, { address, stop: () => {}, seen: 0, connected: false, queue: [] });
  if (!address) return;
  const place = card.querySelector("pre");
  place.scrollTop = place.scrollHeight;
  const listeners = {
    message: onItem,
    end: () => {
      state.stop();
      onEnd();
    },
  };
  state.stop = follow(() => `${address}?after=${findCard()?.dataset.after ?? state.seen}`, listeners, onConnectionChange, true);
}

// Whether a hint tells only of output that this page doesn't show, or shows already.
export function isOutputOfOthers({ kinds, types }) {
  if (kinds.join() !== "due" || !types.length || !types.every((each) => each.startsWith(HINT))) return false;
  const chain = document.querySelector("[data-chain]")?.dataset.chain;
  return state.connected || !types.includes(`${HINT}${chain}`);
}

function findCard() {
  return document.querySelector("[data-output]");
}

function onConnectionChange(isConnected) {
  state.connected = isConnected;
}

// Drawn once a frame: a handler may emit thousands of items in a second.
function onItem(event) {
  if (state.queue.push(event.data) === 1) requestAnimationFrame(showItems);
}

function showItems() {
  const card = findCard();
  const queue = state.queue.splice(0);
  if (!card) return;
  const { dataset } = card;
  const place = card.querySelector("pre");
  const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  let text = place.textContent;
  for (const data of queue) {
    const item = JSON.parse(data);
    // A refresh of the page may have been quicker.
    if (item.id <= Number(dataset.after)) continue;
    dataset.after = item.id;
    if (item.job !== dataset.job) continue;
    if (item.epoch > Number(dataset.epoch)) {
      Object.assign(dataset, { epoch: item.epoch, total: 0, cut: "" });
      text = "";
    }
    text += textOf(item, data, text);
    dataset.total = Number(dataset.total) + 1;
    if (text.length > MAX_CHARACTERS) dataset.cut = "true";
    text = text.slice(-MAX_CHARACTERS);
  }
  state.seen = Number(dataset.after);
  place.textContent = text;
  showCount(card);
  if (isAtEnd) place.scrollTop = place.scrollHeight;
}

// As the server writes it: texts as they came, anything else on a line of its own.
function textOf(item, data, earlier) {
  if (typeof item.data === "string") return visible(item.data);
  // As it came: numbers that are parsed may lose digits.
  const line = data.slice(data.indexOf('"data":') + 7, -1);
  const cut = line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}…` : line;
  return `${earlier && !earlier.endsWith("\n") ? "\n" : ""}${visible(cut)}\n`;
}

function showCount(card) {
  const { epoch, total, cut } = card.dataset;
  const count = total.replace(/\B(?=(?:\d{3})+$)/g, "\u202f");
  card.querySelector("[data-count]").textContent = `${Number(epoch) > 1 ? `epoch ${epoch} · ` : ""}${count} item${total === "1" ? "" : "s"}`;
  card.querySelector("[data-cut-note]").hidden = !cut;
}
