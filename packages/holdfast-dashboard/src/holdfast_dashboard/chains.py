"""The list of chains, and one chain with those it waits for: its progress, and a graph, a tree or a timeline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from holdfast.core.duration import format_span, pluralize
from holdfast.core.instants import Instant
from holdfast.core.lifecycle import CHAIN_COMMANDS, STATES, TERMINAL
from holdfast_dashboard.drawing import dot, line, link, number, path, picture, rect, text
from holdfast_dashboard.forms import FormFields, caller_with_reason, read_form, redirect_back
from holdfast_dashboard.page_context import PageContext, render_page
from holdfast_dashboard.state_tabs import read_list
from holdfast_dashboard.templates import count, instant_of

MAX_NODES = 150
MAX_TIMELINE_ROWS = 80
VIEWS = {"graph": "Graph", "tree": "Tree", "time": "Timeline"}

MIN_GROUP = 4
"""From this many on, blockers of one type are drawn as one."""

UNKNOWN_TYPE = "other chain"
"""The title of blockers whose type is unknown, because the tree was cut before them."""

Tree = Mapping[str, Any]
MakeUrl = Callable[[str], str]

_NODE_WIDTH, _NODE_HEIGHT = 176, 42
_GAP_X, _GAP_Y, _EDGE = 46, 14, 4
_MAX_TITLE = 21

_ROW_WIDTH, _ROW_HEIGHT, _NAME_WIDTH = 900, 24, 190


async def list_page(context: PageContext) -> Response:
    """Show a page of chains."""
    values, chains, status = await read_list(context, "/chains", context.service.chains.page)
    values["chains"] = chains
    return render_page(context, "chains.html", "Chains", "chains", values, status=status)


async def get(context: PageContext) -> Response:
    """Show a chain."""
    detail = await context.service.chains.get(context.caller, context.request.path_params["id"])
    asked = context.query.get("view", "graph")
    view = asked if asked in VIEWS else "graph"
    now = time.time_ns() // 1000
    state = detail.chain["state"]
    values = {
        "chain": detail.chain,
        "moves": context.moves("chain", CHAIN_COMMANDS, state),
        "is_ended": state in TERMINAL,
        "tree": detail.tree,
        "progress": progress_of(detail.tree),
        "waiting": detail.waiting,
        "views": VIEWS,
        "view": view,
        "drawing": None,
        "cut": "",
    }
    if view == "graph":
        graph = lay_out_graph(detail.tree)
        if len(graph.nodes) <= MAX_NODES:
            values["drawing"] = draw_graph(graph, context.url)
        else:
            values["cut"] = f"{len(graph.nodes)} jobs are too many for a graph; see the tree."
    elif view == "time":
        rows = timeline_rows(detail.tree, now)
        values["drawing"] = draw_timeline(rows, context.url)
        if len(rows) > MAX_TIMELINE_ROWS:
            values["cut"] = f"Showing the first {MAX_TIMELINE_ROWS} of {len(rows)} jobs."
    if view != "tree" and detail.tree["earlier_jobs"]:
        earlier = pluralize(detail.tree["earlier_jobs"], "earlier job")
        values["cut"] = f"Without {earlier}. {values['cut']}".rstrip()
    title = f"Chain of {detail.chain['type']}"
    return render_page(context, "chain.html", title, "chains", values, now)


async def move(context: PageContext) -> Response:
    """Cancel or delete a chain, or run it again from a step of its function."""
    fields = await read_form(context)
    caller, id = caller_with_reason(context, fields), context.request.path_params["id"]
    chosen = fields.choose((*CHAIN_COMMANDS, "rerun"))
    if chosen == "rerun":
        made = await context.service.chains.rerun(caller, id, fields.need("step"))
        there = FormFields({"back": [context.url(f"/chains/{made.id}")]})
        return redirect_back(context, there, "start", subject=made.type)
    if chosen == "delete":
        removed = await context.service.chains.delete(caller, [id])
        return redirect_back(context, fields, "delete_chain", removed)
    await context.service.chains.cancel(caller, id)
    return redirect_back(context, fields, "cancel_chain")


class ChainProgress(msgspec.Struct, frozen=True):
    """How many jobs of a chain, and of those it waits for, are done; a chain may still continue."""

    done: int
    total: int
    words: str


def progress_of(tree: Tree) -> ChainProgress:
    """Count the jobs of a chain's tree by state."""
    states = Counter[str](_states(tree))
    done, total = states["completed"], states.total()
    others = [
        f"{count(states[each])} {each}" for each in STATES if each != "completed" and states[each]
    ]
    return ChainProgress(
        done, total, ", ".join([f"{count(done)} of {pluralize(total, 'job')} done", *others])
    )


def _states(tree: Tree) -> Iterator[str]:
    yield from ["completed"] * tree["earlier_jobs"]
    for job in tree["jobs"]:
        yield job["state"]
        for edge in job["waits_for"]:
            if edge["chain"]:
                yield from _states(edge["chain"])


class Node(msgspec.Struct, frozen=True):
    """A job, or a group of blockers of one type, which links to a chain instead."""

    column: int
    row: int
    title: str
    state: str
    note: str
    job_id: str | None = None
    chain_id: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """The source must end before the target; `waits` while it has not."""

    source: Node
    target: Node
    waits: bool


class Graph(msgspec.Struct, frozen=True):
    """Nodes and edges with their positions."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]

    @property
    def columns(self) -> int:
        return 1 + max((each.column for each in self.nodes), default=-1)

    @property
    def rows(self) -> int:
        return 1 + max((each.row for each in self.nodes), default=-1)

    @property
    def current(self) -> Node | None:
        """The chain's newest job; its own jobs are in the first row."""
        return max(
            (each for each in self.nodes if each.row == 0),
            key=lambda each: each.column,
            default=None,
        )


def lay_out_graph(tree: Tree) -> Graph:
    """Give every job of a chain's tree its position."""
    layout = _Layout()
    layout.add_chain(tree)
    return Graph(layout.nodes, layout.edges)


class _Layout:
    """The graph under construction; every chain takes the next free row."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self._row = 0

    def add_chain(self, tree: Tree) -> Node | None:
        """Place a chain's jobs in a row, right of what each waits for; return its last."""
        row, last = self._row, None
        self._row += 1
        for job in tree["jobs"]:
            befores = [(each, waits) for each, waits in self._add_blockers(job) if each is not None]
            sources = [*([(last, False)] if last else []), *befores]
            column = 1 + max((each.column for each, _ in sources), default=-1)
            node = Node(column, row, job["type"], job["state"], _note(job), job_id=job["id"])
            self.nodes.append(node)
            self.edges += [Edge(source, node, waits) for source, waits in sources]
            last = node
        return last

    def _add_blockers(self, job: Tree) -> Iterator[tuple[Node | None, bool]]:
        for type, edges in _by_type(job["waits_for"]).items():
            waits = any(each["open"] for each in edges)
            if len(edges) >= MIN_GROUP:
                yield self._add_group(type or UNKNOWN_TYPE, edges), waits
                continue
            for each in edges:
                below = each["chain"]
                yield self.add_chain(below) if below else self._add_link(each), each["open"]

    def _add_group(self, type: str, edges: Sequence[Tree]) -> Node:
        ended = sum(not each["open"] for each in edges)
        state = _worst([each["state"] for each in edges])
        note = f"{ended} of {len(edges)} ended"
        first = next((each for each in edges if each["open"]), edges[0])
        return self._add_leaf(
            Node(0, 0, f"{len(edges)} × {type}", state, note, None, first["chain_id"])
        )

    def _add_link(self, edge: Tree) -> Node:
        """Add a chain that is drawn already, was deleted, or is nested too deep."""
        title, state = f"chain …{edge['chain_id'][-8:]}", edge["state"] or "cancelled"
        return self._add_leaf(
            Node(0, 0, title, state, "shown on its own page", None, edge["chain_id"])
        )

    def _add_leaf(self, node: Node) -> Node:
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
    """Return the state that matters most."""
    order = ("failed", "cancelled", "running", "pending", "blocked")
    return next((each for each in order if each in states), "completed")


def _note(job: Tree) -> str:
    tries = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
    return f"{job['state']}{tries}"


def draw_graph(graph: Graph, url: MakeUrl) -> Markup:
    """Draw jobs as boxes, with arrows from what must end before them."""
    width = graph.columns * (_NODE_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = graph.rows * (_NODE_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    current = graph.current
    nodes = (
        _node(each, url, "node current" if each is current else "node") for each in graph.nodes
    )
    parts = [*map(_edge, graph.edges), *nodes]
    label = f"Graph of {len(graph.nodes)} jobs; the tree view has the same as text"
    return picture(max(1, width), max(1, height), label, parts)


def _corner(node: Node) -> tuple[float, float]:
    x = _EDGE + node.column * (_NODE_WIDTH + _GAP_X)
    return x, _EDGE + node.row * (_NODE_HEIGHT + _GAP_Y)


def _node(node: Node, url: MakeUrl, kind: str) -> Markup:
    x, y = _corner(node)
    href = url(f"/jobs/{node.job_id}") if node.job_id else url(f"/chains/{node.chain_id}")
    title = node.title
    if len(title) > _MAX_TITLE:
        title = f"{title[: _MAX_TITLE - 1]}…"
    parts = [
        rect(x, y, _NODE_WIDTH, _NODE_HEIGHT, "box", radius=7),
        dot(x + 15, y + 15, 4.5, node.state),
        text(x + 27, y + 19, title, kind="title", width=_NODE_WIDTH - 36),
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


class TimelineRow(msgspec.Struct, frozen=True):
    """A job on the timeline: it waited from `created` and ran from `started` until `ended`."""

    job_id: str
    type: str
    state: str
    created: Instant
    started: Instant | None
    ended: Instant


def timeline_rows(tree: Tree, now: Instant) -> list[TimelineRow]:
    """Return the jobs of a chain's tree in order of creation."""
    return sorted(_rows(tree, now), key=lambda each: (each.created, each.job_id))


def _rows(tree: Tree, now: Instant) -> Iterator[TimelineRow]:
    for job in tree["jobs"]:
        yield TimelineRow(
            job["id"],
            job["type"],
            job["state"],
            instant_of(job["created_at"]),
            instant_of(job["started_at"]) if job["started_at"] else None,
            instant_of(job["finished_at"]) if job["finished_at"] else now,
        )
        for edge in job["waits_for"]:
            if edge["chain"]:
                yield from _rows(edge["chain"], now)


def draw_timeline(rows: Sequence[TimelineRow], url: MakeUrl) -> Markup:
    """Draw when each job waited and ran."""
    shown = rows[:MAX_TIMELINE_ROWS]
    start = min(each.created for each in shown)
    span = max(1, max(each.ended for each in shown) - start)

    def place(instant: Instant) -> float:
        return _NAME_WIDTH + (instant - start) / span * (_ROW_WIDTH - _NAME_WIDTH - 60)

    height = len(shown) * _ROW_HEIGHT + 24
    parts = [
        line(place(start), 0, place(start), height - 20),
        line(place(start + span), 0, place(start + span), height - 20),
        text(place(start), height - 6, "0"),
        text(place(start + span), height - 6, format_span(span), "end"),
    ]
    for index, each in enumerate(shown):
        parts.append(_draw_row(each, index * _ROW_HEIGHT, place, url))
    return picture(_ROW_WIDTH, height, f"Timeline of {len(shown)} jobs", parts)


def _draw_row(
    row: TimelineRow, y: float, place: Callable[[Instant], float], url: MakeUrl
) -> Markup:
    waited_until = row.started if row.started is not None else row.ended
    parts = [
        text(0, y + 15, row.type[:30], kind="title", width=_NAME_WIDTH - 10),
        rect(place(row.created), y + 9, place(waited_until) - place(row.created), 4, "waited"),
    ]
    label = f"{row.type}: {row.state}, waited {format_span(waited_until - row.created)}"
    if row.started is not None:
        x, ran = place(row.started), row.ended - row.started
        parts.append(rect(x, y + 5, max(2, place(row.ended) - x), 12, row.state, radius=2))
        parts.append(text(place(row.ended) + 6, y + 15, format_span(ran)))
        label = f"{label}, ran {format_span(ran)}"
    return link(url(f"/jobs/{row.job_id}"), label, "node", parts)
