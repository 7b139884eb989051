// Starts every part; each does nothing on pages that lack its elements.
import { startActions } from "./actions.js";
import { startCopy } from "./copy.js";
import { startGraph } from "./graph.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startSelection } from "./selection.js";
import { startSuggestions } from "./suggest.js";
import { startTail } from "./tail.js";
import { startTimes } from "./times.js";
import { startWait } from "./wait.js";

// On a phone the menu is wider than the screen.
document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
startTimes();
startSelection();
startActions();
startCopy();
startGraph();
startKeys();
startSuggestions();
startTail();
startWait();
startLive();
