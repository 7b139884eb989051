"""A chain as a tree: its jobs in order, and below each the chains that it waits for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import clean
from holdfast.cli.talk import wants_colour
from holdfast.cli.views import first_line, state_colour
from holdfast.core.errors import ChainNotFound
from holdfast.service.shown import shown_blocker, shown_chain, shown_job

if TYPE_CHECKING:
    from holdfast.storage.port import Store
    from holdfast.storage.statement import Op

MOST_CHAINS = 200
"""A tree that is larger says so where it was cut."""


def read_tree(store: Store, chain_id: str, depth: int) -> Op[dict[str, Any]]:
    """Read a chain with its jobs and, down to a depth, the chains they wait for. Raises: ChainNotFound."""
    tree = yield from _read(store, chain_id, depth, {chain_id})
    if tree is None:
        raise ChainNotFound(f"there is no chain {chain_id}")
    return tree


def _read(store: Store, chain_id: str, depth: int, seen: set[str]) -> Op[dict[str, Any] | None]:
    chains = yield from store.chains.get([chain_id])
    if not chains:
        return None
    records = yield from store.chains.jobs(chain_id)
    edges = yield from store.blockers.of_jobs([each.id for each in records])
    jobs = {each.id: {**shown_job(each), "waits_for": []} for each in records}
    for edge in edges:
        below: dict[str, Any] | None = None
        if depth > 0 and edge.chain_id not in seen and len(seen) < MOST_CHAINS:
            seen.add(edge.chain_id)
            below = yield from _read(store, edge.chain_id, depth - 1, seen)
        waits_for: list[Any] = jobs[edge.job_id]["waits_for"]
        waits_for.append({**shown_blocker(edge), "chain": below})
    return {**shown_chain(chains[0]), "jobs": list(jobs.values())}


def write_tree(tree: dict[str, Any]) -> None:
    """Write a tree for people."""
    colour = wants_colour(sys.stdout)
    click.echo(_chain_line(tree), color=colour)
    for line in _jobs(tree, ""):
        click.echo(line, color=colour)


def _jobs(chain: dict[str, Any], margin: str) -> Iterator[str]:
    jobs = chain["jobs"]
    for place, job in enumerate(jobs, start=1):
        last = place == len(jobs)
        yield f"{margin}{'└─' if last else '├─'} {_job_line(job)}"
        yield from _blockers(job, f"{margin}{'   ' if last else '│  '}")


def _blockers(job: dict[str, Any], margin: str) -> Iterator[str]:
    edges = job["waits_for"]
    for place, edge in enumerate(edges, start=1):
        last = place == len(edges)
        word = "waits for" if edge["open"] else "waited for"
        chain = edge["chain"]
        shown = _chain_line(chain) if chain else f"{edge['chain_id']}  {_state(edge)}"
        yield f"{margin}{'└─' if last else '├─'} {word} {shown}"
        if chain:
            yield from _jobs(chain, f"{margin}{'   ' if last else '│  '}")


def _chain_line(chain: dict[str, Any]) -> str:
    key = f"  key {clean(chain['key'])}" if chain["key"] else ""
    return f"{chain['id']}  {click.style(clean(chain['type']), bold=True)}  {_state(chain)}{key}"


def _job_line(job: dict[str, Any]) -> str:
    attempt = f"  attempt {job['attempt']}" if job["attempt"] > 1 else ""
    error = f"  {clean(first_line(job['error']))}" if job["error"] else ""
    line = f"{job['chain_index'] + 1}  {clean(job['type'])}  {_state(job)}{attempt}{error}"
    return line if job["chain_index"] == 0 else f"{line}  {job['id']}"


def _state(record: dict[str, Any]) -> str:
    state = str(record["state"] or "gone")
    return click.style(state, fg=state_colour(record))
