// Starts every part; each does nothing on pages that lack its elements.
import { startActions } from "./actions.js";
import { startGraph } from "./graph.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startSelection } from "./selection.js";
import { startTail } from "./tail.js";
import { startTimes } from "./times.js";
import { startWait } from "./wait.js";

// On a phone the menu is wider than the screen.
document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
startTimes();
startSelection();
startActions();
startGraph();
startKeys();
startTail();
startWait();
startLive();
