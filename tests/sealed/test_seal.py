"""The seal itself: its keys, what it refuses, and a codec of one's own in its place."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, Seal, Sealed, errors
from holdfast.core.sealing import is_sealed, key_id, open_input, seal_input
from holdfast_testing.kit import Kit
from tests.sealed.conftest import NEW, OLD, add_types

JOB = "0193a6f0-7c00-7000-8000-000000000000"
OTHER = "0193a6f0-7c00-7000-8000-000000000001"


class Reversed:
    """A codec of one's own; a real one would ask a key service for data keys and keep them."""

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        return Sealed("mine", (bound_to + b"\0" + plain)[::-1])

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        bound, _, plain = sealed.data[::-1].partition(b"\0")
        if bound != bound_to:
            raise errors.SealBroken("it is another job's", key=sealed.key)
        return plain


def test_what_was_sealed_opens_for_the_same_job_and_type_only() -> None:
    seal = Seal({"k": NEW})
    text = seal_input(seal, '{"a":1}', JOB, "mail")
    assert is_sealed(text)
    assert key_id(text) == "k"
    assert open_input(seal, text, JOB, "mail") == '{"a":1}'
    assert seal_input(seal, '{"a":1}', JOB, "mail") != text
    for id, type in ((OTHER, "mail"), (JOB, "mails")):
        with pytest.raises(errors.SealBroken):
            open_input(seal, text, id, type)


def test_a_changed_byte_is_noticed() -> None:
    seal = Seal({"k": NEW})
    sealed = seal.seal(b"plain", b"job")
    for place in range(len(sealed.data)):
        changed = bytearray(sealed.data)
        changed[place] ^= 1
        with pytest.raises(errors.SealBroken):
            seal.open(Sealed("k", bytes(changed)), b"job")
    for data in (b"", sealed.data[:20]):
        with pytest.raises(errors.SealBroken):
            seal.open(Sealed("k", data), b"job")


@pytest.mark.parametrize("text", ['{"$sealed":', '{"$sealed":{}}', '{"$sealed":{"key":1}}'])
def test_an_envelope_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(errors.SealBroken, match="no valid envelope"):
        open_input(Seal({"k": NEW}), text, JOB, "mail")


def test_the_first_key_seals_unless_another_is_current() -> None:
    assert Seal({"a": NEW, "b": OLD}).seal(b"", b"").key == "a"
    assert Seal({"a": NEW, "b": OLD}, current="b").seal(b"", b"").key == "b"
    assert Seal({"raw": base64.b64decode(NEW)}).seal(b"", b"").key == "raw"


def test_no_key_is_shown() -> None:
    assert repr(Seal({"a": NEW})) == "Seal(keys=['a'], current='a')"


@pytest.mark.parametrize(
    ("keys", "current", "said"),
    [
        ({}, None, "a seal needs a key"),
        ({"a": "c2hvcnQ="}, None, "'a' is not 32 bytes"),
        ({"a": "not base64!"}, None, "'a' is not 32 bytes"),
        ({"a b": NEW}, None, "id of a seal's key is not valid"),
        ({"a": NEW}, "b", "no key 'b'"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(
    keys: dict[str, str], current: str | None, said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said) as refusal:
        Seal(keys, current)
    assert all(key not in str(refusal.value) for key in keys.values())


def test_keys_come_from_the_environment_or_a_file(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"new:{NEW}\nold:{OLD}\n")
    for setting in (f"new:{NEW}, old:{OLD}", f"@{file}"):
        monkeypatch.setenv("HOLDFAST_SEAL_KEYS", setting)
        kit = Kit(add_types(Holdfast(sqlite_url)), sqlite_url)
        with kit.app.transaction() as tx:
            chain = kit.app.start(tx, "letter.write", {"name": "Ana"})
        kit.run_until_idle()
        assert kit.app.chains.get(chain).output == "Dear Ana"
        kit.app.close()


@pytest.mark.parametrize(
    "setting",
    [NEW, f"a:{NEW},a:{OLD}", "a:short", "@nowhere/keys"],
    ids=["no id", "one id twice", "short", "no file"],
)
def test_a_setting_that_cannot_be_read_is_refused_without_repeating_it(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SEAL_KEYS", setting)
    with pytest.raises(errors.ConfigError) as refusal:
        Holdfast("sqlite:///unused.db")
    assert NEW not in refusal.value.render()


def test_a_codec_of_ones_own_takes_its_place(sqlite_url: str) -> None:
    kit = Kit(add_types(Holdfast(sqlite_url, seal=Reversed())), sqlite_url)
    with kit.app.transaction() as tx:
        chain = kit.app.start(tx, "letter.write", {"name": "Ana"})
    kit.run_until_idle()
    assert kit.app.chains.get(chain).output == "Dear Ana"
    kit.app.close()


def test_without_the_package_the_error_says_how_to_install_it() -> None:
    script = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from holdfast import Seal, errors\n"
        "try: Seal({'a': Seal.new_key()})\n"
        "except errors.MissingExtra as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 'pip install "holdfast-jobs[sealed]"' in done.stdout


def test_an_application_without_keys_imports_no_cryptography(tmp_path: Path) -> None:
    script = (
        "import sys; from holdfast import Holdfast, Seal\n"
        f"app = Holdfast('sqlite:///{tmp_path}/a.db'); app.migrate(); app.close()\n"
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
