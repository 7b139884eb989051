"""A schema of functions, operators, types and tables that take the place of pg_catalog's where they can, and fail."""

from typing import Any

from psycopg import Connection, sql

from holdfast.storage.postgres.qualify import FUNCTIONS

OPERATORS = [
    "=",
    "<>",
    "<",
    ">",
    "<=",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "&&",
    "@>",
    "&",
    "|",
    "#",
]
OPERATORS += ["<<", "->", "->>", "~~", "~~*", "!~~", "!~~*"]
OTHER_FUNCTIONS = [
    "now",
    "left",
    "pg_advisory_unlock_all",
    "pg_try_advisory_lock",
    "hashtextextended",
]
PLANT = """
create schema hostile;
do $plant$
declare
  each record;
  fail text := $fail$ as 'begin raise exception ''a hostile function was called''; end' language plpgsql$fail$;
begin
  for each in select o.oid, oprname, oprleft, oprright, oprresult from pg_operator o
               where oprnamespace = 'pg_catalog'::regnamespace and oprname = any ({operators}) and oprleft <> 0
  loop
    begin
      execute format('create function hostile.op_%s(%s, %s) returns %s', each.oid, each.oprleft::regtype,
                     each.oprright::regtype, each.oprresult::regtype) || fail;
      execute format('create operator hostile.%s (leftarg = %s, rightarg = %s, function = hostile.op_%s)', each.oprname,
                     each.oprleft::regtype, each.oprright::regtype, each.oid);
    exception when others then null;
    end;
  end loop;
  for each in select proname, replace(pg_get_function_identity_arguments(oid), '"any"', 'text') as arguments,
                     replace(pg_get_function_result(oid), '"any"', 'text') as result
                from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any ({functions})
  loop
    begin
      execute format('create function hostile.%I(%s) returns %s', each.proname, each.arguments,
                     coalesce(each.result, 'void')) || fail;
    exception when others then null;
    end;
  end loop;
  -- Where pg_catalog's take any type, those of one type fit better, wherever they are on the search path.
  for each in select n, t from unnest(array['to_json', 'count', 'array_agg', 'max', 'min', 'unnest', 'cardinality']) n,
                               unnest(array['text', 'uuid', 'uuid[]', 'text[]', 'smallint[]', 'bigint']) t
  loop
    begin
      execute format('create function hostile.%I(%s) returns text', each.n, each.t) || fail;
    exception when others then null;
    end;
  end loop;
  execute 'create function hostile.times(integer, interval) returns interval' || fail;
  create operator hostile.* (leftarg = integer, rightarg = interval, function = hostile.times);
end
$plant$;
create domain hostile.text as pg_catalog.text check (false);
create domain hostile.uuid as pg_catalog.uuid check (false);
create domain hostile.json as pg_catalog.json check (false);
create domain hostile.timestamptz as pg_catalog.timestamptz check (false);
create table hostile.pg_class (); create table hostile.pg_settings (); create table hostile.pg_stat_activity ();
grant usage on schema hostile to public
"""


def plant(connection: Connection[Any]) -> None:
    """Make the schema `hostile`."""
    functions = sorted({*FUNCTIONS, *OTHER_FUNCTIONS})
    connection.execute(sql.SQL(PLANT).format(operators=OPERATORS, functions=functions))
