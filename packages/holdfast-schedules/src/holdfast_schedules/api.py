"""Schedules over HTTP."""

from __future__ import annotations

from holdfast.web.middleware import root_path
from holdfast.web.route import LIMIT, ApiResponse, BoundRequest, Param, Route, command
from holdfast_schedules.admin import ScheduleAdmin, ScheduleRequest, schedule_json
from holdfast_schedules.commands import ScheduleFacts
from holdfast_schedules.schedule_store import SchedulePage


def _to_json(request: BoundRequest, facts: ScheduleFacts) -> dict[str, object]:
    sealer = request.service.app.registry.sealer
    return schedule_json(facts, sealer, not request.caller.may("job.payload"))


async def list_(request: BoundRequest) -> ApiResponse:
    """List schedules by name; the page after one begins after its last name, which is `next`."""
    paused = {"paused": True, "active": False}.get(request["state"] or "")
    page = SchedulePage(
        request["limit"],
        request["after"] or "",
        request["prefix"],
        request["type"],
        paused,
        request["state"] == "late",
    )
    found = await request.service.of(ScheduleAdmin).list(request.caller, page)
    following = found[-1].schedule.name if len(found) == request["limit"] else None
    return ApiResponse({"items": [_to_json(request, each) for each in found], "next": following})


async def set_(request: BoundRequest) -> ApiResponse:
    """Set a schedule: it is made, or changed; where nothing is different, nothing is written."""
    wanted: ScheduleRequest = request.body
    facts = await request.service.of(ScheduleAdmin).set(request.caller, wanted)
    return ApiResponse(_to_json(request, facts))


async def get(request: BoundRequest) -> ApiResponse:
    """Show a schedule, and why it starts nothing if that is so."""
    facts = await request.service.of(ScheduleAdmin).get(request.caller, request["name"])
    return ApiResponse(_to_json(request, facts))


async def list_slots(request: BoundRequest) -> ApiResponse:
    """List the latest due times of a schedule and the jobs that were started for them, newest first."""
    found = await request.service.of(ScheduleAdmin).history(
        request.caller, request["name"], request["limit"]
    )
    return ApiResponse({"items": found})


async def pause(request: BoundRequest) -> ApiResponse:
    """Start no jobs of a schedule until it is resumed."""
    await request.service.of(ScheduleAdmin).pause(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": True})


async def resume(request: BoundRequest) -> ApiResponse:
    """Go on with the next due time of a schedule; those of the pause are left out."""
    await request.service.of(ScheduleAdmin).resume(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "paused": False})


async def run_now(request: BoundRequest) -> ApiResponse:
    """Start a job of a schedule now, paused or not."""
    chain = await request.service.of(ScheduleAdmin).run_now(request.caller, request["name"])
    location = f"{root_path(request.http)}/api/v1/chains/{chain.id}"
    value = {"name": request["name"], "id": str(chain.id), "type": chain.type}
    return ApiResponse(value, 201, {"Location": location})


async def delete(request: BoundRequest) -> ApiResponse:
    """Remove a schedule; jobs that it started stay."""
    await request.service.of(ScheduleAdmin).delete(request.caller, request["name"])
    return ApiResponse({"name": request["name"], "deleted": True})


_ALL = "/api/v1/schedules"
_NAME = Param("name", "path", text="The schedule's name.")
_ONE = f"{_ALL}/{{name:path}}"

ROUTES = (
    Route(
        "GET",
        _ALL,
        "schedule.list",
        list_,
        (
            Param("prefix", "query", text="Only names that begin with this."),
            Param("type", "query", text="Only this job type."),
            Param("state", "query", text="Only these.", choices=("active", "paused", "late")),
            Param("after", "query", text="The name that the previous page returned as `next`."),
            LIMIT,
        ),
        other_noun="schedule",
    ),
    Route(
        "POST",
        _ALL,
        "schedule.set",
        set_,
        (),
        ScheduleRequest,
        answers=(200, 404, 413, 422),
        other_noun="schedule",
    ),
    Route(
        "GET", f"{_ONE}/slots", "schedule.list", list_slots, (_NAME, LIMIT), other_noun="schedule"
    ),
    command(f"{_ONE}/pause", "schedule.pause", pause, _NAME, other_noun="schedule"),
    command(f"{_ONE}/resume", "schedule.resume", resume, _NAME, other_noun="schedule"),
    command(
        f"{_ONE}/run-now",
        "schedule.run_now",
        run_now,
        _NAME,
        other_noun="schedule",
        answers=(201, 422),
    ),
    Route("GET", _ONE, "schedule.list", get, (_NAME,), other_noun="schedule"),
    Route("DELETE", _ONE, "schedule.delete", delete, (_NAME,), other_noun="schedule"),
)
