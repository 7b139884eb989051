"""The archive over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.web.route import AFTER, LIMIT, ApiResponse, BoundRequest, Param, Route, command
from holdfast_archive.admin import STATES, ArchiveAdmin, ManifestWork


class RestoreRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why rows are restored, and into which table if not their own."""

    reason: str | None = None
    into: str | None = None


async def overview(request: BoundRequest) -> ApiResponse:
    """Summarize the archive: whether it is configured, and what it holds per source."""
    found = await request.service.of(ArchiveAdmin).overview(request.caller)
    return ApiResponse(found.as_json())


async def manifests(request: BoundRequest) -> ApiResponse:
    """List manifests, the newest period first."""
    found = await request.service.of(ArchiveAdmin).page(
        request.caller, request["source"], request["state"], request["limit"], request["after"]
    )
    return ApiResponse({"items": [each.as_json() for each in found.items], "next": found.next})


async def get(request: BoundRequest) -> ApiResponse:
    """Show a manifest with its objects, and what this process is doing with it."""
    archive = request.service.of(ArchiveAdmin)
    found = await archive.get(request.caller, request["name"])
    work = archive.work_on(found.manifest)
    return ApiResponse({**found.as_json(), "work": None if work is None else work.as_json()})


async def run(request: BoundRequest) -> ApiResponse:
    """Archive what is due at the next tick of any worker."""
    await request.service.of(ArchiveAdmin).request_run(request.caller)
    return ApiResponse({"requested": True}, 202)


async def verify(request: BoundRequest) -> ApiResponse:
    """Read the objects of a manifest and compare them with what was stored; 202 if that takes longer."""
    return _answer(
        await request.service.of(ArchiveAdmin).begin(request.caller, "verify", request["name"])
    )


async def restore(request: BoundRequest) -> ApiResponse:
    """Insert the archived rows that are missing; 202 if that takes longer."""
    archive = request.service.of(ArchiveAdmin)
    found = await archive.begin(request.caller, "restore", request["name"], request.body.into)
    return _answer(found)


def _answer(work: ManifestWork) -> ApiResponse:
    return ApiResponse(work.as_json(), 200 if work.is_done else 202)


_MANIFEST = Param(
    "name", "path", text="Its id, or source/period/part as in `deliveries/2026-10/0`."
)
_ONE = "/api/v1/archive/manifests/{name:path}"

ROUTES = (
    Route("GET", "/api/v1/archive", "archive.list", overview),
    Route(
        "GET",
        "/api/v1/archive/manifests",
        "archive.list",
        manifests,
        (
            Param("source", "query", text="Only this source."),
            Param("state", "query", text="Only this state.", choices=STATES),
            LIMIT,
            AFTER,
        ),
    ),
    command("/api/v1/archive/run", "archive.run", run, answers=(202, 404)),
    command(f"{_ONE}/verify", "archive.verify", verify, _MANIFEST, answers=(200, 202, 409)),
    Route(
        "POST",
        f"{_ONE}/restore",
        "archive.restore",
        restore,
        (_MANIFEST,),
        RestoreRequest,
        answers=(200, 202, 409),
    ),
    Route("GET", _ONE, "archive.list", get, (_MANIFEST,)),
)
