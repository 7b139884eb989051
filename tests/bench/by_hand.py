"""The rows of a start written by hand into our tables, as fast as psycopg allows: unnest, COPY, one by one."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast.storage.identifiers import new_id, new_ids

ONE = """
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  values (%(id)s::uuid, %(id)s::uuid, 0, %(type)s, %(input)s, 5, 0, now())),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at) values (%(id)s::uuid, %(type)s, 5, now()))
insert into holdfast.tally (at, type, started) values (now(), %(type)s, 1)
"""

UNNEST = """
with written as (
  insert into holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at)
  select id, id, 0, %(type)s, input, 5, 0, now()
    from unnest(%(ids)s::uuid[], %(inputs)s::text[]) as given (id, input)
  returning id),
queued as (
  insert into holdfast.queue (job_id, type, priority, available_at) select id, %(type)s, 5, now() from written)
insert into holdfast.tally (at, type, started) values (now(), %(type)s, %(count)s)
"""

COPY_JOB = """
copy holdfast.job (id, chain_id, chain_index, type, input, priority, blockers, created_at) from stdin
"""

COPY_QUEUE = "copy holdfast.queue (job_id, type, priority, available_at) from stdin"

TALLY = "insert into holdfast.tally (at, type, started) values (now(), %s, %s)"


def start_one(connection: psycopg.Connection[Any], type: str, input: str) -> None:
    """Write one chain in one statement."""
    connection.execute(ONE, {"id": new_id(), "type": type, "input": input})


def start_unnested(connection: psycopg.Connection[Any], type: str, inputs: list[str]) -> None:
    """Write chains in one statement, parameters as arrays."""
    rows = {"ids": new_ids(len(inputs)), "inputs": inputs, "type": type, "count": len(inputs)}
    connection.execute(UNNEST, rows)


def start_copied(connection: psycopg.Connection[Any], type: str, inputs: list[str]) -> None:
    """Write chains with COPY, table by table."""
    ids = new_ids(len(inputs))
    with connection.cursor() as cursor:
        with cursor.copy(COPY_JOB) as copy:
            for id, input in zip(ids, inputs, strict=True):
                copy.write_row((id, id, 0, type, input, 5, 0, "now"))
        with cursor.copy(COPY_QUEUE) as copy:
            for id in ids:
                copy.write_row((id, type, 5, "now"))
        cursor.execute(TALLY, (type, len(inputs)))
