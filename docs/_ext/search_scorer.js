/* How the documentation's search orders its results; Sphinx puts it in front of its own script. What people do comes
   first, then what it means; attributes that only share a name, and decisions, come last. */
"use strict";

const AREAS = { do: 3, start: 2, run: 2, understand: 1, index: 1, why: 0, reference: -3, adr: -500 };

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (kind !== "object") return score + (AREAS[docname.split("/")[0]] ?? 0);
    const isOwnName = /^Python (class|function|exception)/.test(descr ?? "");
    return isOwnName && !title.includes(".contrib.") ? score : score - 1000;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
