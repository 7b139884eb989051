"""Where the jobs of a chain, and of the chains it waits for, stand in a graph: time runs to the right.

A chain as a graph and as a time line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from holdfast.core.duration import spoken
from holdfast.core.records import Instant
from holdfast.web.pages.drawing.svg import dot, line, link, number, path, picture, rect, text
from holdfast.web.pages.template_filters import instant_of

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


Url = Callable[[str], str]

_NODE_WIDTH, _NODE_HEIGHT = 176, 42
_GAP_X, _GAP_Y, _EDGE = 46, 14, 4
_LONGEST_TITLE = 21

_LINE_WIDTH, _LINE_HEIGHT, _NAMES = 900, 24, 190
MOST_LINES = 80


def draw_graph(graph: Graph, url: Url) -> Markup:
    """Draw jobs as boxes and what must end before them as arrows."""
    width = graph.columns * (_NODE_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = graph.rows * (_NODE_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    current = graph.current
    nodes = (
        _node(each, url, "node current" if each is current else "node") for each in graph.nodes
    )
    parts = [*map(_edge, graph.edges), *nodes]
    label = f"Graph of {len(graph.nodes)} jobs; the tree says the same in words"
    return picture(max(1, width), max(1, height), label, parts)


def _corner(node: Node) -> tuple[float, float]:
    x = _EDGE + node.column * (_NODE_WIDTH + _GAP_X)
    return x, _EDGE + node.row * (_NODE_HEIGHT + _GAP_Y)


def _node(node: Node, url: Url, kind: str) -> Markup:
    x, y = _corner(node)
    href = url(f"/jobs/{node.job_id}") if node.job_id else url(f"/chains/{node.chain_id}")
    title = node.title
    if len(title) > _LONGEST_TITLE:
        title = f"{title[: _LONGEST_TITLE - 1]}…"
    parts = [
        rect(x, y, _NODE_WIDTH, _NODE_HEIGHT, "box", radius=7),
        dot(x + 15, y + 15, 4.5, node.state),
        text(x + 27, y + 19, title, kind="title"),
        text(x + 27, y + 34, node.note),
    ]
    return link(href, f"{node.title}: {node.note}", kind, parts)


def _edge(edge: Edge) -> Markup:
    x1, y1 = _corner(edge.source)
    x2, y2 = _corner(edge.target)
    x1, y1, y2 = x1 + _NODE_WIDTH, y1 + _NODE_HEIGHT / 2, y2 + _NODE_HEIGHT / 2
    middle = number(x2 - _GAP_X / 2)
    steps = (
        f"M{number(x1)} {number(y1)}C{middle} {number(y1)} {middle} {number(y2)} "
        f"{number(x2)} {number(y2)}"
    )
    kind = "edge open" if edge.waits else "edge"
    head = f"M{number(x2 - 7)} {number(y2 - 4)}l6 4l-6 4"
    return path(steps, kind) + path(head, f"{kind} head")


class Line(msgspec.Struct, frozen=True):
    """A job on the time line: it waited from `begun`, ran from `started`, until `ended`."""

    job_id: str
    type: str
    state: str
    begun: Instant
    started: Instant | None
    ended: Instant


def lines_of(tree: Mapping[str, Any], now: Instant) -> list[Line]:
    """Return the jobs of a chain's tree in the order of their creation."""
    return sorted(_lines(tree, now), key=lambda each: (each.begun, each.job_id))


def _lines(tree: Mapping[str, Any], now: Instant) -> Iterator[Line]:
    for job in tree["jobs"]:
        yield Line(
            job["id"],
            job["type"],
            job["state"],
            instant_of(job["created_at"]),
            instant_of(job["started_at"]) if job["started_at"] else None,
            instant_of(job["finished_at"]) if job["finished_at"] else now,
        )
        for edge in job["waits_for"]:
            if edge["chain"]:
                yield from _lines(edge["chain"], now)


def draw_lines(lines: Sequence[Line], url: Url) -> Markup:
    """Draw when each job waited and ran."""
    shown = lines[:MOST_LINES]
    begun = min(each.begun for each in shown)
    span = max(1, max(each.ended for each in shown) - begun)

    def place(instant: Instant) -> float:
        return _NAMES + (instant - begun) / span * (_LINE_WIDTH - _NAMES - 60)

    height = len(shown) * _LINE_HEIGHT + 24
    parts = [
        line(place(begun), 0, place(begun), height - 20),
        line(place(begun + span), 0, place(begun + span), height - 20),
        text(place(begun), height - 6, "0"),
        text(place(begun + span), height - 6, spoken(span), "end"),
    ]
    for row, each in enumerate(shown):
        parts.append(_line(each, row * _LINE_HEIGHT, place, url))
    return picture(_LINE_WIDTH, height, f"Time line of {len(shown)} jobs", parts)


def _line(each: Line, y: float, place: Callable[[Instant], float], url: Url) -> Markup:
    waited_until = each.started if each.started is not None else each.ended
    parts = [
        text(0, y + 15, each.type[:30], kind="title"),
        rect(place(each.begun), y + 9, place(waited_until) - place(each.begun), 4, "waited"),
    ]
    told = f"{each.type}: {each.state}, waited {spoken(waited_until - each.begun)}"
    if each.started is not None:
        x, ran = place(each.started), each.ended - each.started
        parts.append(rect(x, y + 5, max(2, place(each.ended) - x), 12, each.state, radius=2))
        parts.append(text(place(each.ended) + 6, y + 15, spoken(ran)))
        told = f"{told}, ran {spoken(ran)}"
    return link(url(f"/jobs/{each.job_id}"), told, "node", parts)
