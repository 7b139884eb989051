"""The reference of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs._ext.reference.markdown import code, table
from docs._ext.reference.undocumented import require

from holdfast.web.openapi import document


def page() -> str:
    """Return every route by tag. Raises: Undocumented."""
    operations = list(_operations(document()["paths"]))
    require(
        "routes without text",
        (f"{method} {path}" for method, path, each in operations if not each.get("summary")),
    )
    tags = dict.fromkeys(each["tags"][0] for _, _, each in operations)
    return f"{_answers(each for _, _, each in operations)}\n" + "\n".join(
        f"## {tag.capitalize()}\n\n"
        + "\n".join(_entry(*each) for each in operations if each[2]["tags"][0] == tag)
        for tag in tags
    )


def _operations(paths: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _entry(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"### {code(f'{method} {path}')}\n", operation["summary"]]
    if operation.get("description"):
        parts[-1] += f" {operation['description']}"
    parts[-1] += "\n"
    if operation["parameters"]:
        parts.append(
            table(("parameter", "in", "meaning"), map(_parameter, operation["parameters"]))
        )
    if "requestBody" in operation:
        parts.append(f"Body: {_body(operation['requestBody'])}.\n")
    parts.append(f"Returns {', '.join(map(code, operation['responses']))}.\n")
    return "\n".join(parts)


def _answers(operations: Iterable[dict[str, Any]]) -> str:
    """What each status means, once for all routes."""
    meanings = {
        status: each["description"]
        for operation in operations
        for status, each in operation["responses"].items()
    }
    rows = ((code(status), meanings[status]) for status in sorted(meanings))
    return f"## Status codes\n\n{table(('status', 'meaning'), rows)}"


def _parameter(each: dict[str, Any]) -> tuple[str, str, str]:
    name = f"{code(each['name'])} (required)" if each.get("required") else code(each["name"])
    return name, each["in"], each.get("description", "")


def _body(body: dict[str, Any]) -> str:
    schema = next(iter(body["content"].values()))["schema"]
    fields = _resolved(schema).get("properties", {})
    return ", ".join(code(name) for name in fields) or "any JSON"


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = document()["components"]["schemas"][name]
    return found
