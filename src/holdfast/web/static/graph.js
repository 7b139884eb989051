// A wide graph begins with the farthest blocker; it opens at the job that its chain has come to.
export function startGraph() {
  const current = document.querySelector(".graph-box .current");
  if (!current) return;
  const box = current.closest(".graph-box");
  const inner = current.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  box.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
}
