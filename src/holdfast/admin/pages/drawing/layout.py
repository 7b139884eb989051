"""Where the jobs of a chain, and of the chains it waits for, stand in a graph: time runs to the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

FEWEST_GROUPED = 4
"""So many blockers of one type are drawn as one."""

UNREAD = "other chain"
"""How blockers are called whose type the tree does not tell, because it was cut before them."""

Tree = Mapping[str, Any]


class Node(msgspec.Struct, frozen=True):
    """A job, or blockers of one type taken together; `chain_id` leads where no single job is meant."""

    column: int
    row: int
    title: str
    state: str
    note: str
    job_id: str | None = None
    chain_id: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """What must end before what; `waits` while it has not."""

    source: Node
    target: Node
    waits: bool


class Graph(msgspec.Struct, frozen=True):
    """Nodes and edges with their places; columns and rows are counts."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return 1 + max((each.column for each in self.nodes), default=-1)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return 1 + max((each.row for each in self.nodes), default=-1)

    @property
    def current(self) -> Node | None:
        """The job that the chain has come to: the last of its own, which stand in the first row."""
        return max(
            (each for each in self.nodes if each.row == 0),
            key=lambda each: each.column,
            default=None,
        )


def lay_out(tree: Tree) -> Graph:
    """Give every job of a chain's tree its place."""
    plan = _Plan()
    plan.chain(tree)
    return Graph(plan.nodes, plan.edges)


class _Plan:
    """The graph while it grows; every chain takes the next free row."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self._row = 0

    def chain(self, tree: Tree) -> Node | None:
        """Place a chain's jobs in a row, after what each waits for; return its last."""
        row, last = self._row, None
        self._row += 1
        for job in tree["jobs"]:
            befores = [(each, waits) for each, waits in self._blockers(job) if each is not None]
            sources = [*([(last, False)] if last else []), *befores]
            column = 1 + max((each.column for each, _ in sources), default=-1)
            node = Node(column, row, job["type"], job["state"], _note(job), job_id=job["id"])
            self.nodes.append(node)
            self.edges += [Edge(source, node, waits) for source, waits in sources]
            last = node
        return last

    def _blockers(self, job: Tree) -> Iterator[tuple[Node | None, bool]]:
        for type, edges in _by_type(job["waits_for"]).items():
            waits = any(each["open"] for each in edges)
            if len(edges) >= FEWEST_GROUPED:
                yield self._group(type or UNREAD, edges), waits
                continue
            for each in edges:
                below = each["chain"]
                yield self.chain(below) if below else self._elsewhere(each), each["open"]

    def _group(self, type: str, edges: Sequence[Tree]) -> Node:
        ended = sum(not each["open"] for each in edges)
        state = _worst([each["state"] for each in edges])
        note = f"{ended} of {len(edges)} ended"
        first = next((each for each in edges if each["open"]), edges[0])
        return self._leaf(
            Node(0, 0, f"{len(edges)} × {type}", state, note, None, first["chain_id"])
        )

    def _elsewhere(self, edge: Tree) -> Node:
        """A chain that was drawn before, is gone, or lies too deep."""
        title, state = f"chain …{edge['chain_id'][-8:]}", edge["state"] or "cancelled"
        return self._leaf(Node(0, 0, title, state, "shown on its own page", None, edge["chain_id"]))

    def _leaf(self, node: Node) -> Node:
        placed = msgspec.structs.replace(node, row=self._row)
        self._row += 1
        self.nodes.append(placed)
        return placed


def _by_type(edges: Sequence[Tree]) -> dict[str, list[Tree]]:
    found: dict[str, list[Tree]] = {}
    for each in edges:
        found.setdefault(each["chain"]["type"] if each["chain"] else "", []).append(each)
    return found


def _worst(states: Sequence[str | None]) -> str:
    """Return the state that is most worth showing."""
    order = ("failed", "cancelled", "running", "pending", "blocked")
    return next((each for each in order if each in states), "completed")


def _note(job: Tree) -> str:
    tries = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
    return f"{job['state']}{tries}"
