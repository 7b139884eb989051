"""A chain's tree as a terminal shows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.output import clean
from holdfast.cli.talk import wants_colour
from holdfast.cli.views import first_line, state_colour


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
