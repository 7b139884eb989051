"""One chain: as a graph, a tree and a time line of the same data."""

from __future__ import annotations

import time

from starlette.responses import Response

from holdfast.web.pages.bulk import caller_of
from holdfast.web.pages.drawing.chain_graph import (
    MOST_LINES,
    draw_graph,
    draw_lines,
    lay_out,
    lines_of,
)
from holdfast.web.pages.forms import led_back, read_fields
from holdfast.web.pages.page_context import Visit, show

MOST_NODES = 150
VIEWS = ("graph", "tree", "time")


async def chain(visit: Visit) -> Response:
    """Show a chain."""
    detail = await visit.service.chains.get(visit.caller, visit.request.path_params["id"])
    asked = visit.query.get("view", "graph")
    view = asked if asked in VIEWS else "graph"
    now = time.time_ns() // 1000
    values = {
        "chain": detail.chain,
        "tree": detail.tree,
        "waiting": detail.waiting,
        "views": VIEWS,
        "view": view,
        "drawn": None,
        "cut": "",
    }
    if view == "graph":
        graph = lay_out(detail.tree)
        if len(graph.nodes) <= MOST_NODES:
            values["drawn"] = draw_graph(graph, visit.url)
        else:
            values["cut"] = f"{len(graph.nodes)} jobs are too many to draw; see the tree."
    elif view == "time":
        lines = lines_of(detail.tree, now)
        values["drawn"] = draw_lines(lines, visit.url)
        if len(lines) > MOST_LINES:
            values["cut"] = f"The first {MOST_LINES} of {len(lines)} jobs are shown."
    return show(visit, "chain.html", f"Chain of {detail.chain['type']}", "jobs", values, now)


async def move_chain(visit: Visit) -> Response:
    """Cancel or delete a chain."""
    fields = await read_fields(visit)
    caller, id = caller_of(visit, fields), visit.request.path_params["id"]
    if fields.one("move") == "delete":
        removed = await visit.service.chains.delete(caller, [id])
        return led_back(visit, fields, "delete", removed)
    await visit.service.chains.cancel(caller, id)
    return led_back(visit, fields, "cancel")
