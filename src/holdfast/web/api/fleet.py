"""Types, workers and cycles over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.admin.serializers import plain, version_of
from holdfast.commands.types import TypeChange
from holdfast.web.api.jobs import Reasoned
from holdfast.web.bound_request import Call
from holdfast.web.route import LIMIT, Answer, Param, Route


class TypeSettings(TypeChange, frozen=True, forbid_unknown_fields=True):
    """Settings of a type to be changed; -1 takes one back to the code's own."""

    reason: str | None = None


async def types(call: Call) -> Answer:
    """List types."""
    found = await call.service.types.list(call.caller)
    items = [{**each.as_json(), "version": version_of(plain(each.setting))} for each in found]
    return Answer({"items": items})


async def pause_type(call: Call) -> Answer:
    """Pause a type."""
    setting = await call.service.types.pause(call.caller, call["type"], call.expected)
    return Answer(setting, version=version_of(setting))


async def resume_type(call: Call) -> Answer:
    """Resume a type."""
    setting = await call.service.types.resume(call.caller, call["type"], call.expected)
    return Answer(setting, version=version_of(setting))


async def set_type(call: Call) -> Answer:
    """Set a type."""
    fields = msgspec.structs.asdict(call.body)
    del fields["reason"]
    setting = await call.service.types.set(
        call.caller, call["type"], TypeChange(**fields), call.expected
    )
    return Answer(setting, version=version_of(setting))


async def pause_all(call: Call) -> Answer:
    """Pause everything."""
    await call.service.types.pause_all(call.caller, True)
    return Answer({"paused": True})


async def resume_all(call: Call) -> Answer:
    """Resume everything."""
    await call.service.types.pause_all(call.caller, False)
    return Answer({"paused": False})


async def workers(call: Call) -> Answer:
    """List workers."""
    found = await call.service.workers.list(call.caller, call["all"], call["limit"])
    return Answer({"items": [each.as_json() for each in found]})


async def drain(call: Call) -> Answer:
    """Drain a worker."""
    await call.service.workers.drain(call.caller, call["id"])
    return Answer({"id": call["id"], "draining": True})


async def cycles(call: Call) -> Answer:
    """List cycles."""
    found = await call.service.cycles.list(call.caller)
    return Answer({"items": [each.as_json() for each in found]})


async def pause_cycle(call: Call) -> Answer:
    """Pause a cycle."""
    await call.service.cycles.pause(call.caller, call["name"])
    return Answer({"name": call["name"], "paused": True})


async def resume_cycle(call: Call) -> Answer:
    """Resume a cycle."""
    await call.service.cycles.resume(call.caller, call["name"])
    return Answer({"name": call["name"], "paused": False})


async def run_cycle(call: Call) -> Answer:
    """Run a cycle now."""
    await call.service.cycles.run_now(call.caller, call["name"])
    return Answer({"name": call["name"], "requested": True}, 202)


_TYPE = Param("type", "path", text="The name of a job type.")
_WORKER = Param("id", "path", text="The worker's id.")
_CYCLE = Param("name", "path", text="The cycle's name.")
_ALL = Param("all", "query", "flag", "Whether those that have stopped are listed.", False)
_SET = (200, 404, 412)

ROUTES = (
    Route("GET", "/api/v1/types", "type.list", types, "List job types.", tag="types"),
    Route(
        "POST",
        "/api/v1/types/pause-all",
        "type.pause",
        pause_all,
        "Pause everything: workers finish what they run and take no more.",
        body=Reasoned,
        tag="types",
    ),
    Route(
        "POST",
        "/api/v1/types/resume-all",
        "type.resume",
        resume_all,
        "Resume everything.",
        body=Reasoned,
        tag="types",
    ),
    Route(
        "POST",
        "/api/v1/types/{type:path}/pause",
        "type.pause",
        pause_type,
        "Pause a job type: workers finish what they run and take no more of it.",
        (_TYPE,),
        Reasoned,
        versioned=True,
        answers=_SET,
        tag="types",
    ),
    Route(
        "POST",
        "/api/v1/types/{type:path}/resume",
        "type.resume",
        resume_type,
        "Resume a job type.",
        (_TYPE,),
        Reasoned,
        versioned=True,
        answers=_SET,
        tag="types",
    ),
    Route(
        "PATCH",
        "/api/v1/types/{type:path}",
        "type.set",
        set_type,
        "Change settings of a job type while workers run.",
        (_TYPE,),
        TypeSettings,
        versioned=True,
        answers=_SET,
        tag="types",
    ),
    Route(
        "GET",
        "/api/v1/workers",
        "worker.list",
        workers,
        "List workers, the youngest first.",
        (_ALL, LIMIT),
        tag="workers",
    ),
    Route(
        "POST",
        "/api/v1/workers/{id}/drain",
        "worker.drain",
        drain,
        "Ask a worker to take nothing new, finish what it runs, and end.",
        (_WORKER,),
        Reasoned,
        answers=(200, 404),
        tag="workers",
    ),
    Route("GET", "/api/v1/cycles", "cycle.list", cycles, "List cycles.", tag="cycles"),
    Route(
        "POST",
        "/api/v1/cycles/{name}/pause",
        "cycle.pause",
        pause_cycle,
        "Let a cycle rest.",
        (_CYCLE,),
        Reasoned,
        answers=(200, 404),
        tag="cycles",
    ),
    Route(
        "POST",
        "/api/v1/cycles/{name}/resume",
        "cycle.resume",
        resume_cycle,
        "Let a cycle run again.",
        (_CYCLE,),
        Reasoned,
        answers=(200, 404),
        tag="cycles",
    ),
    Route(
        "POST",
        "/api/v1/cycles/{name}/run-now",
        "cycle.run_now",
        run_cycle,
        "Have the next tick run a cycle, paused or not.",
        (_CYCLE,),
        Reasoned,
        answers=(202, 404),
        tag="cycles",
    ),
)
