"""The whole over HTTP: overview, system, audit, tokens, and the outbox under its first users' names."""

from __future__ import annotations

import msgspec

from holdfast.admin.overview import STEPS_MS
from holdfast.admin.roles import LOCAL, Role
from holdfast.admin.serializers import health_json, plain, rfc3339
from holdfast.core.errors import Unauthenticated
from holdfast.web.api.jobs import Reasoned
from holdfast.web.bound_request import Call
from holdfast.web.route import AFTER, ID, LIMIT, Answer, Param, Route


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: str
    role: str
    expires: str | None = None
    reason: str | None = None


async def overview(call: Call) -> Answer:
    """Show how everything stands."""
    found = await call.service.overview.get(call.caller, call["window"])
    return Answer(
        {
            "sentence": found.sentence,
            "health": health_json(found.health),
            "window": found.window,
            "p95_wait_seconds": _seconds(found.p95_wait_us),
            "median_wait_seconds": _seconds(found.median_wait_us),
            "series": [{**plain(each), "at": rfc3339(each.at)} for each in found.series],
        }
    )


async def system(call: Call) -> Answer:
    """Show what the installation is made of."""
    return Answer(await call.service.overview.system(call.caller))


async def doctor(call: Call) -> Answer:
    """Show the doctor's findings."""
    return Answer({"items": await call.service.doctor.findings(call.caller)})


async def audit(call: Call) -> Answer:
    """List deeds."""
    wanted = {name: call[name] for name in ("actor", "action", "target")}
    return Answer(
        await call.service.audit.page(call.caller, call["limit"], call["after"], **wanted)
    )


async def tokens(call: Call) -> Answer:
    """List tokens."""
    return Answer({"items": await call.service.tokens.list(call.caller)})


async def create_token(call: Call) -> Answer:
    """Make a token."""
    wanted: NewToken = call.body
    role = Role.parse(wanted.role)
    made = await call.service.tokens.create(call.caller, wanted.name, role, wanted.expires)
    return Answer(made, 201)


async def revoke_token(call: Call) -> Answer:
    """Revoke a token."""
    await call.service.tokens.revoke(call.caller, call["id"])
    return Answer({"id": call["id"], "revoked": True})


async def outbox_stats(call: Call) -> Answer:
    """Show the outbox."""
    _insist_on_a_token(call)
    return Answer(await call.service.outbox.stats(call.caller))


async def outbox_run_once(call: Call) -> Answer:
    """Run a tick."""
    _insist_on_a_token(call)
    call.site.run_once_rate.take()
    return Answer(await call.service.outbox.run_once(call.caller))


def _insist_on_a_token(call: Call) -> None:
    """Admit nobody for sitting at this machine: the outbox's first users were promised 401 without a token."""
    if call.caller.principal is LOCAL:
        raise Unauthenticated("no valid token came with the request")


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000


_WINDOW = Param("window", "query", text="How far back.", default="1h", choices=tuple(STEPS_MS))
_ACTOR = Param("actor", "query", text="Only what this one did.")
_ACTION = Param("action", "query", text="Only deeds of this kind, as in job.retry.")
_TARGET = Param("target", "query", text="Only what was done to this, as in `type mail.send`.")

ROUTES = (
    Route(
        "GET",
        "/api/v1/overview",
        "overview.read",
        overview,
        "Show how the queue stands and how it went.",
        (_WINDOW,),
        tag="overview",
    ),
    Route(
        "GET",
        "/api/v1/system",
        "system.read",
        system,
        "Show database, schema and effective settings.",
        tag="overview",
    ),
    Route(
        "GET",
        "/api/v1/doctor",
        "doctor.read",
        doctor,
        "Check configuration, fleet and database; each finding says what mends it.",
        tag="overview",
    ),
    Route(
        "GET",
        "/api/v1/audit",
        "audit.list",
        audit,
        "List who did what, newest first.",
        (LIMIT, AFTER, _ACTOR, _ACTION, _TARGET),
        tag="audit",
    ),
    Route("GET", "/api/v1/tokens", "token.list", tokens, "List tokens.", tag="tokens"),
    Route(
        "POST",
        "/api/v1/tokens",
        "token.create",
        create_token,
        "Make a token; its secret is in this answer and nowhere else.",
        body=NewToken,
        answers=(201,),
        tag="tokens",
    ),
    Route(
        "POST",
        "/api/v1/tokens/{id}/revoke",
        "token.revoke",
        revoke_token,
        "Make a token invalid from now on.",
        (ID,),
        Reasoned,
        answers=(200, 404),
        tag="tokens",
    ),
    Route(
        "GET",
        "/api/settings/events/outbox/stats",
        "outbox.stats",
        outbox_stats,
        "Show queue, runtime and configuration of the outbox.",
        tag="outbox",
    ),
    Route(
        "POST",
        "/api/settings/events/outbox/run-once",
        "outbox.run_once",
        outbox_run_once,
        "Run one tick in this process; says so when one runs already.",
        answers=(200, 429),
        tag="outbox",
    ),
)
