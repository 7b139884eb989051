// A wide graph begins with the farthest blocker; scroll to the chain's newest job.
export function startGraph() {
  const current = document.querySelector(".graph-box .current");
  if (!current) return;
  const box = current.closest(".graph-box");
  const inner = current.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  box.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
}
