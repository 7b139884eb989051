"""Tokens are made, listed and revoked by command, on both stores."""

import json
import re

from holdfast.admin.access import hash_of
from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene


def test_a_token_is_made_and_its_secret_can_be_had_alone(run: Run, scene: Scene) -> None:
    result = run("token", "create", "--role", "developer", "--name", "ana", "-o", "id")
    secret = result.stdout.strip()
    assert re.fullmatch(r"hf_[\w-]{43}", secret)
    assert "cannot be shown again" in result.stderr
    (stored,) = scene.database.read(scene.store.tokens.page(10))
    assert (stored.name, stored.role, stored.hash) == ("ana", "developer", hash_of(secret))
    assert [action for action, _, _ in scene.deeds()] == ["token.create"]


def test_a_token_without_a_name_stands_for_whoever_made_it(run: Run, scene: Scene) -> None:
    assert run("token", "create", "--role", "developer", "-o", "id").exit_code == 0
    (stored,) = scene.database.read(scene.store.tokens.page(10))
    (deed,) = json.loads(run("audit", "list", "-o", "json").stdout)
    assert stored.name == deed["actor"]


def test_a_list_shows_tokens_without_anything_that_opens(run: Run, scene: Scene) -> None:
    made = run(
        "token", "create", "--role", "viewer", "--name", "ci", "--expires", "90d", "-o", "id"
    )
    rows = json.loads(run("token", "list", "-o", "json").stdout)
    assert [(each["name"], each["role"]) for each in rows] == [("ci", "viewer")]
    assert rows[0]["expires_at"] is not None
    shown = run("token", "list").stdout
    assert made.stdout.strip() not in shown
    assert hash_of(made.stdout.strip()) not in shown


def test_a_token_is_revoked_once(run: Run, scene: Scene) -> None:
    run("token", "create", "--role", "user", "--name", "bob", "-o", "id")
    id = run("token", "list", "-o", "id").stdout.strip()
    assert run("token", "revoke", id, "--reason", "left").exit_code == 0
    again = run("token", "revoke", id)
    assert again.exit_code == Exit.NOT_FOUND
    assert "HF097" in again.stderr
    assert scene.deeds()[-1] == ("token.revoke", f"token {id}", "left")


def test_wrong_input_is_refused(run: Run, scene: Scene) -> None:
    assert run("token", "create", "--role", "root", "--name", "x").exit_code == Exit.USAGE
    soon = run("token", "create", "--role", "user", "--name", "x", "--expires", "soon")
    assert soon.exit_code == Exit.USAGE
    unknown = run("token", "revoke", "not-an-id")
    assert unknown.exit_code == Exit.USAGE
    assert "holdfast token list -o id" in unknown.stderr
    assert "no tokens; until you create one" in run("token", "list").stderr
