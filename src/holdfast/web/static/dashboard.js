// Starts the parts; each one does nothing on pages that lack what it serves.
import { startActing } from "./acting.js";
import { startChoosing } from "./choosing.js";
import { startGraph } from "./graph.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startTail } from "./tail.js";
import { startTimes } from "./times.js";
import { startWaiting } from "./waiting.js";

// On a phone the menu is wider than the screen.
document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
startTimes();
startChoosing();
startActing();
startGraph();
startKeys();
startTail();
startWaiting();
startLive();
