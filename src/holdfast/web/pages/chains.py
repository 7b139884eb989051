"""The page of one chain, as a graph, a tree and a timeline of the same data."""

from __future__ import annotations

import time

from starlette.responses import Response

from holdfast.core.lifecycle import CHAIN_COMMANDS, TERMINAL
from holdfast.web.pages.drawing.chain_graph import (
    MAX_TIMELINE_ROWS,
    draw_graph,
    draw_timeline,
    lay_out_graph,
    timeline_rows,
)
from holdfast.web.pages.forms import caller_with_reason, read_form, redirect_back
from holdfast.web.pages.page_context import PageContext, render_page

MAX_NODES = 150
VIEWS = {"graph": "Graph", "tree": "Tree", "time": "Timeline"}


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
    title = f"Chain of {detail.chain['type']}"
    return render_page(context, "chain.html", title, "jobs", values, now)


async def move(context: PageContext) -> Response:
    """Cancel or delete a chain."""
    fields = await read_form(context)
    caller, id = caller_with_reason(context, fields), context.request.path_params["id"]
    if fields.choose(CHAIN_COMMANDS) == "delete":
        removed = await context.service.chains.delete(caller, [id])
        return redirect_back(context, fields, "delete_chain", removed)
    await context.service.chains.cancel(caller, id)
    return redirect_back(context, fields, "cancel_chain")
