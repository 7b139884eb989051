"""Roles are ordered, every action has a least role, and tokens open the door until they end."""

import re
from pathlib import Path

import pytest

import holdfast.admin
from holdfast.admin.access import (
    POLICY,
    Principal,
    Role,
    check,
    hash_of,
    is_secret,
    may,
    new_secret,
)
from holdfast.admin.service import Service
from holdfast.core.errors import InvalidOption, Refused, TokenNotFound
from holdfast.storage.id_generator import new_id
from tests.admin.conftest import DEVELOPER, OPERATOR, VIEWER
from tests.cli.scene import Scene


def test_each_role_may_do_what_those_below_it_may() -> None:
    for action in POLICY:
        allowed = [may(Principal("ana", role), action) for role in Role]
        assert allowed == sorted(allowed)
        assert allowed[Role.DEVELOPER]
        assert not allowed[Role.USER]


def test_a_refusal_names_the_role_that_is_needed() -> None:
    with pytest.raises(Refused, match=r"does not allow chain\.delete") as refused:
        check(Principal("ana", Role.OPERATOR), "chain.delete")
    assert refused.value.rule == "chain.delete needs the role developer"


def test_every_action_that_the_service_names_is_in_the_policy() -> None:
    folder = Path(holdfast.admin.__file__).parent
    named = {
        action
        for file in folder.glob("*.py")
        for action in re.findall(
            r'"((?:audit|chain|cycle|dead|job|outbox|token|type|worker)\.[a-z_]+)"',
            file.read_text(),
        )
    }
    assert named <= POLICY.keys()
    assert len(named) > 20


def test_a_role_is_read_from_its_word_only() -> None:
    assert Role.parse("operator") is Role.OPERATOR
    with pytest.raises(InvalidOption, match="'root' is not a role"):
        Role.parse("root")


def test_secrets_are_long_recognisable_and_never_the_same() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(is_secret(each) and each.startswith("hf_") and len(each) == 46 for each in made)
    assert not is_secret("hf_short")
    assert not is_secret(f"{new_secret()}\n")


async def test_a_token_opens_the_door_with_its_role_until_it_is_revoked(service: Service) -> None:
    made = await service.tokens.create(DEVELOPER, Principal("ci", Role.VIEWER))
    assert await service.tokens.principal(made.secret) == Principal("ci", Role.VIEWER)
    assert await service.tokens.principal(new_secret()) is None
    await service.tokens.revoke(DEVELOPER, made.token["id"])
    assert await service.tokens.principal(made.secret) is None
    with pytest.raises(TokenNotFound):
        await service.tokens.revoke(DEVELOPER, made.token["id"])


async def test_a_token_that_has_expired_opens_nothing(service: Service, scene: Scene) -> None:
    made = await service.tokens.create(DEVELOPER, Principal("ci", Role.VIEWER), "90d")
    now = scene.database.read(scene.store.schema.clock())
    found = scene.database.read(scene.store.tokens.find(hash_of(made.secret)))
    assert found is not None
    assert found.expires_at is not None
    assert abs(found.expires_at - now - 90 * 86_400_000_000) < 60_000_000
    later = found.expires_at
    assert scene.database.read(scene.store.tokens.find(hash_of(made.secret), later)) is None


async def test_only_the_hash_of_a_secret_is_stored_and_lists_show_neither(
    service: Service, scene: Scene
) -> None:
    made = await service.tokens.create(DEVELOPER, Principal("ci", Role.OPERATOR))
    (stored,) = scene.database.read(scene.store.tokens.page(10))
    assert stored.hash == hash_of(made.secret)
    (listed,) = await service.tokens.list(DEVELOPER)
    assert listed["name"] == "ci"
    assert stored.hash not in str(listed)
    assert made.secret not in str(listed)


async def test_a_use_is_noted_to_the_minute(service: Service, scene: Scene) -> None:
    made = await service.tokens.create(DEVELOPER, Principal("ci", Role.VIEWER))
    await service.tokens.principal(made.secret)
    (first,) = scene.database.read(scene.store.tokens.page(10))
    assert first.last_used_at is not None
    await service.tokens.principal(made.secret)
    (second,) = scene.database.read(scene.store.tokens.page(10))
    assert second.last_used_at == first.last_used_at
    scene.database.run(scene.store.tokens.touch(first.id, first.last_used_at + 61_000_000))
    (third,) = scene.database.read(scene.store.tokens.page(10))
    assert third.last_used_at == first.last_used_at + 61_000_000


@pytest.mark.parametrize("name", ["", "x" * 101, "new\nline"])
async def test_a_token_without_a_usable_name_is_refused(service: Service, name: str) -> None:
    with pytest.raises(InvalidOption):
        await service.tokens.create(DEVELOPER, Principal(name, Role.VIEWER))


async def test_tokens_are_the_developers_business(service: Service) -> None:
    for each in (VIEWER, OPERATOR):
        with pytest.raises(Refused):
            await service.tokens.create(each, Principal("ci", Role.VIEWER))
        with pytest.raises(Refused):
            await service.tokens.list(each)
        with pytest.raises(Refused):
            await service.tokens.revoke(each, new_id())
    assert not await service.tokens.exist()
