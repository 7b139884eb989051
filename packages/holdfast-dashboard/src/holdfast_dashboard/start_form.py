"""The form that starts a job: made from its type's input, or filled with an earlier job's to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from holdfast.client.start_options import StartOptions
from holdfast.commands.workers import unknown_type
from holdfast.core.errors import HoldfastError, InputInvalid, InvalidOption
from holdfast.core.redaction import redact_value
from holdfast.core.sealing import KeptInput
from holdfast.core.start_table import START_OPTIONS
from holdfast_dashboard.forms import FormFields, caller_with_reason, parse_form
from holdfast_dashboard.input_fields import (
    InputField,
    field_texts,
    input_fields,
    read_fields,
    read_json_input,
)
from holdfast_dashboard.page_context import PageContext, render_page

FIELD = "in."
"""The prefix of the fields of the input among those of the form."""

MAX_EDITED = 200_000
"""Characters of an input that a form can send back: escaped it is up to three times as long."""

_OPTIONS = {name: each for name, each in START_OPTIONS.items() if each.word}
_KEPT = ("version", "sealed")
_CORRECTABLE = (400, 404, 409, 413, 422)


class Draft(msgspec.Struct, frozen=True):
    """What a form is about: the type, its fields if they are known here, and the job that it begins with."""

    type: str
    fields: list[InputField] | None
    like: str | None = None
    before: Any = None
    options: StartOptions = {}

    @property
    def kept(self) -> KeptInput | None:
        """The earlier input, if it is in a file and is not edited here."""
        return self.before if isinstance(self.before, KeptInput) else None

    @property
    def kept_options(self) -> StartOptions:
        """What no field of the form shows: the earlier job's seal, and its version if its type is unknown here."""
        kept = {name: value for name, value in self.options.items() if name in _KEPT}
        return cast(StartOptions, kept)

    @property
    def before_fields(self) -> Mapping[str, Any]:
        """The earlier input by its properties."""
        return self.before if isinstance(self.before, dict) else {}

    def texts(self) -> dict[str, str]:
        """Return the texts that the form begins with."""
        begun = {name: str(value) for name, value in self.options.items() if value is not None}
        if self.kept is not None:
            return begun
        if self.fields is None:
            shown = {} if self.like is None else redact_value(self.before)
            raw = msgspec.json.format(msgspec.json.encode(shown), indent=2)
            return begun | {FIELD: raw.decode()}
        texts = field_texts(self.fields, self.before_fields)
        return begun | {FIELD + name: text for name, text in texts.items()}

    def read(self, form: FormFields) -> Any:
        """Return the input that a form describes. Raises: InputInvalid."""
        if self.kept is not None:
            return self.before
        if self.fields is None:
            return read_json_input(form.one(FIELD), self.before)
        sent = {each.name: "".join(form.all(FIELD + each.name)) for each in self.fields}
        return read_fields(self.fields, sent, self.before_fields)


async def get(context: PageContext) -> Response:
    """Show the form of a type or of a job to run again, or ask for the type."""
    query = context.query
    type, like = query.get("type", "").strip(), query.get("like", "").strip()
    if not type and not like:
        return await _choose_type(context)
    draft = await _draft(context, type, like, query.get("as") == "json")
    return _render(context, draft, draft.texts())


async def start(context: PageContext) -> Response:
    """Start the job that a form describes; what is wrong with it is said beside what was typed."""
    form = await parse_form(context.request)
    draft = await _draft(context, form.one("type"), form.one("like"), form.one("as") == "json")
    try:
        chain = await context.service.chains.start(
            caller_with_reason(context, form),
            draft.type,
            draft.read(form),
            {**draft.kept_options, **_options(form)},
            like=draft.like,
        )
    except HoldfastError as error:
        if error.http_status not in _CORRECTABLE:
            raise
        typed = {name: "".join(values) for name, values in form.values.items()}
        return _render(context, draft, typed, error)
    flash = {"done": "not_started" if chain.deduplicated else "start", "subject": draft.type}
    moved = {} if chain.deduplicated else {"moved": 1}
    target = context.url(f"/jobs/{chain.id}")
    return RedirectResponse(f"{target}?{urlencode(flash | moved)}", 303)


async def _draft(context: PageContext, type: str, like: str, as_json: bool) -> Draft:
    if not like:
        await _check_known(context, type)
        return Draft(type, None if as_json else _fields_of(context, type))
    found = await context.service.chains.template(context.caller, like, type, MAX_EDITED)
    wanted = type or found.type
    fields = None if as_json or not isinstance(found.input, dict) else _fields_of(context, wanted)
    return Draft(wanted, fields, found.id, found.input, found.options_of(wanted))


def _json_because(context: PageContext, draft: Draft) -> str:
    """Say why there are no fields, where the reader did not ask for that."""
    if _fields_of(context, draft.type) is not None:
        return ""
    if context.service.app.registry.find(draft.type) is None:
        return "this process doesn't know the type"
    return "the type's input has no named fields"


def _fields_of(context: PageContext, type: str) -> list[InputField] | None:
    known = context.service.app.registry.find(type)
    return None if known is None else input_fields(known.input.schema())


async def _check_known(context: PageContext, type: str) -> None:
    """Refuse a type that neither the application nor the database knows: its jobs would wait forever."""
    if type in context.service.app.registry:
        return
    known = await _known_types(context)
    if type not in known:
        raise unknown_type(type, sorted(known))


def _options(form: FormFields) -> StartOptions:
    given: dict[str, Any] = {name: form.one(name) for name in _OPTIONS if form.one(name)}
    for name in (name for name, each in _OPTIONS.items() if each.kind == "number"):
        text = given.get(name, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidOption(f"{name}={text[:40]!r} is not a whole number")
        if text:
            given[name] = int(text)
    return cast(StartOptions, given)


def _render(
    context: PageContext, draft: Draft, texts: Mapping[str, str], error: HoldfastError | None = None
) -> Response:
    path = error.path if isinstance(error, InputInvalid) else ""
    size = sum(map(len, texts.values()))
    values = {
        "draft": draft,
        "texts": texts,
        "options": _OPTIONS,
        "prefix": FIELD,
        "refusal": error,
        "wrong": path.removeprefix("$.").partition(".")[0].partition("[")[0],
        "is_too_large": size > MAX_EDITED,
        "as_json": context.here(type=draft.type, like=draft.like, **{"as": "json"}),
        "json_because": _json_because(context, draft),
    }
    title = "Run again" if draft.like else "Start a job"
    status = 200 if error is None else error.http_status
    return render_page(context, "start.html", title, "jobs", values, status=status)


async def _choose_type(context: PageContext) -> Response:
    here = {each.name for each in context.service.app.registry if each.entry}
    types = sorted(here | await _known_types(context))
    return render_page(context, "start_type.html", "Start a job", "jobs", {"types": types})


async def _known_types(context: PageContext) -> set[str]:
    """Return the types that the database knows, as far as the caller may know them."""
    if not context.caller.may("type.list"):
        return set()
    return {each.totals.type for each in await context.service.types.list(context.caller)}
