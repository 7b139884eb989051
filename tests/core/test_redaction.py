"""Redaction: no secret survives, and ordinary text does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redaction import MASK, redact, redact_value

CANARY = "c4n4ryS3cret0123456789"


@pytest.mark.parametrize(
    "template",
    [
        "password=%s",
        "connection failed: host=db password=%s port=5432",
        "DB_PASSWORD: %s",
        '{"password": "%s", "user": "ana"}',
        """{'api_key': '%s with spaces, and \\' quotes'}""",
        'secret="%s',
        "{'api_key': b'%s'}",
        "password=Password('%s)')",
        "token=Token(kind=1, value='%s')",
        "{'password': ['%s', 7]}",
        "credentials={'value': '%s'}",
        "?access_token=%s&page=2",
        "postgresql://app:%s@db.example/shop",
        "postgresql://app:pa/ss@%s@db.example/shop",
        "redis://:%s@cache:6379/0",
        "https://%s@github.com/org/repo.git",
        "Authorization: Bearer %s",
        "{'Authorization': 'Basic %s=='}",
        "sent header bearer %s to the gateway",
        "Cookie: session=%s; theme=dark",
        "the key is %s",
        "token '%s' has expired",
        "AWS_SECRET_ACCESS_KEY=%s",
        "used hf_%s for login",
        "used ghp_%s and sk_live_%s",
        "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.%s",
        "-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n%s",
    ],
)
def test_a_secret_is_masked_wherever_it_stands(template: str) -> None:
    cleaned = redact(template.replace("%s", CANARY))
    assert CANARY not in cleaned
    assert MASK in cleaned


def test_an_access_key_id_is_masked() -> None:
    assert redact("key AKIAIOSFODNN7EXAMPLE used") == f"key {MASK} used"


def test_what_surrounds_a_secret_stays_readable() -> None:
    assert (
        redact("postgresql://app:pw@db/shop refused") == f"postgresql://app:{MASK}@db/shop refused"
    )
    assert redact("host=db password=pw port=1") == f"host=db password={MASK} port=1"
    assert redact('{"token": "pw", "id": 7}') == f'{{"token": {MASK}, "id": 7}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: invalid literal for int() with base 10: 'x'",
        'duplicate key value violates unique constraint "order_items_customer_id_2_key"',
        "password authentication failed for user app",
        "GET https://api.example:8080/v1/orders/@me?page=2 answered 503",
        "postgresql://app@db.example/shop",
        "job 0193a6f0-7c00-7000-8000-000000000000 with key 0193a6f0-7c00-7000-8000-000000000001",
        "basic authentication is required",
        "the token has expired",
        'File "/srv/app/secrets.py", line 12, in read_token',
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "key",
    [
        *(
            "password",
            "userPassword",
            "DB_PASSWORD",
            "passwords",
            "token",
            "accessToken",
            "x-api-key",
        ),
        *(
            "apiKey",
            "APIKey",
            "secret",
            "client_secret",
            "authorization",
            "cardNumber",
            "cvv",
            "pin",
        ),
        *("privateKey", "session_id", "Set-Cookie", "iban"),
    ],
)
def test_secret_fields_are_masked_whatever_they_hold(key: str) -> None:
    for value in ("x", 4111, ["a"], {"b": 1}, None, True):
        assert redact_value({key: value, "id": 1}) == {key: MASK, "id": 1}


@pytest.mark.parametrize(
    "key", ["shipping", "keyboard", "monkey", "id", "author", "discard", "key"]
)
def test_ordinary_fields_are_shown(key: str) -> None:
    assert redact_value({key: "x"}) == {key: "x"}


def test_strings_at_any_depth_are_redacted() -> None:
    value = {"a": [{"url": "redis://:pw@cache/0"}], "n": 1.5, "none": None}
    shown = redact_value(value)
    assert shown == {"a": [{"url": f"redis://:{MASK}@cache/0"}], "n": 1.5, "none": None}
    assert value["a"] == [{"url": "redis://:pw@cache/0"}]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(_JSON)
def test_any_json_value_can_be_shown(value: Any) -> None:
    assert json.dumps(redact_value(value))


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)
