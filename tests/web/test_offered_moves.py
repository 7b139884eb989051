"""Pages offer what the lifecycle table allows in a state and the caller's role permits, and nothing else."""

from __future__ import annotations

import re

import pytest

from holdfast.admin.access import Role
from holdfast.core.lifecycle import CHAIN_COMMANDS, JOB_COMMANDS, STATES, State
from tests.cli.scene import Scene
from tests.web.conftest import Api


def in_state(scene: Scene, state: State, type: str = "mail.send") -> str:
    """The id of a job in a state, which is its chain's too."""
    match state:
        case "blocked":
            return scene.start(type, blockers=(scene.start(),))
        case "pending":
            return scene.start(type)
        case "running":
            return scene.running(type).id
        case "completed":
            return scene.ended("complete", type)
        case "failed":
            return scene.failed(type=type)
        case "cancelled":
            return scene.ended("cancel", type)


def offered(page: str) -> set[str]:
    """The moves that a page has buttons for."""
    return set(re.findall(r'<button name="move" value="(\w+)"', page))


@pytest.mark.parametrize("state", STATES)
async def test_a_page_offers_what_the_state_allows(api: Api, scene: Scene, state: State) -> None:
    id = in_state(scene, state)
    for noun, commands in (("jobs", JOB_COMMANDS), ("chains", CHAIN_COMMANDS)):
        allowed = {name for name, command in commands.items() if command.allows(state)}
        page = await api.call(Role.DEVELOPER, "GET", f"/{noun}/{id}")
        assert offered(page.text) == allowed, noun
        page = await api.call(Role.VIEWER, "GET", f"/{noun}/{id}")
        assert offered(page.text) == set(), noun


@pytest.mark.parametrize("state", STATES)
async def test_the_api_refuses_what_the_state_does_not_allow(
    api: Api, scene: Scene, state: State
) -> None:
    for name, command in JOB_COMMANDS.items():
        id = in_state(scene, state, f"job.{name}")
        path = f"/api/v1/jobs/{id}/{name.replace('_', '-')}"
        answer = await api.call(Role.DEVELOPER, "POST", path)
        assert answer.status_code == (200 if command.allows(state) else 409), name
