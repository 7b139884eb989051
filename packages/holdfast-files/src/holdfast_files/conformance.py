"""What every file store does, whichever it is."""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from holdfast.core.errors import InvalidOption
from holdfast_files import Data, Files, ListedFile, StoredFile, content_key
from holdfast_files.errors import InvalidObjectKey, ObjectCorrupted, ObjectExists, ObjectNotFound

KEY = "invoices/2026/0042.pdf"
PDF = b"%PDF-1.7 forty-two"
MANY = 1_005
LARGE = 20_000_000

BAD_KEYS = [
    "",
    "/etc/passwd",
    "a/",
    "a//b",
    "..",
    "a/../../b",
    "a/./b",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a/.holdfast/b",
    "k" * 256,
    "/".join(["part"] * 250),
    "\ud800",
]


def sha256(data: bytes) -> str:
    """Return the checksum as records have it."""
    return hashlib.sha256(data).hexdigest()


def large() -> Iterator[bytes]:
    """Yield the same 20 MB each time."""
    source = random.Random(7)
    for _ in range(LARGE // 500_000):
        yield source.randbytes(500_000)


def large_sha256() -> str:
    """Return the checksum of `large`."""
    digest = hashlib.sha256()
    for block in large():
        digest.update(block)
    return digest.hexdigest()


class FilesContract:
    """Inherited by a class for each store, which gives the fixture `files`."""

    def test_what_is_put_is_got_with_its_record(self, files: Files) -> None:
        record = files.put(KEY, PDF)
        assert record == StoredFile(KEY, len(PDF), sha256(PDF), "application/pdf")
        assert files.get(KEY) == PDF
        assert files.head(KEY) == record
        assert files.verify(KEY) == record
        assert files.exists(KEY)

    def test_a_put_replaces_content_and_media_type(self, files: Files) -> None:
        files.put(KEY, PDF)
        record = files.put(KEY, b"<p>", "text/html; charset=utf-8")
        assert files.get(KEY) == b"<p>"
        assert files.head(KEY) == record
        assert record.content_type == "text/html; charset=utf-8"

    def test_content_comes_in_any_form(self, files: Files, tmp_path: Path) -> None:
        path = tmp_path / "invoice.pdf"
        path.write_bytes(PDF)
        with path.open("rb") as opened:
            forms: list[Data] = [
                PDF,
                bytearray(PDF),
                memoryview(PDF),
                path,
                opened,
                iter([PDF[:5], PDF[5:]]),
            ]
            records = {files.put(KEY, form) for form in forms}
        assert records == {StoredFile(KEY, len(PDF), sha256(PDF), "application/pdf")}

    def test_an_object_may_be_empty(self, files: Files) -> None:
        assert files.put("empty", b"").size == 0
        assert files.get("empty") == b""
        assert files.open("empty").read() == b""

    def test_what_is_not_binary_is_refused(self, files: Files) -> None:
        for data in ("text", io.StringIO("text"), io.StringIO(""), ["text"], 42):
            with pytest.raises(InvalidOption):
                files.put(KEY, cast(bytes, data))
        assert not files.exists(KEY)

    @pytest.mark.parametrize("media_type", ["pdf", "", "text/plain\r\nx: y", "a/b/c"])
    def test_what_is_no_media_type_is_refused(self, files: Files, media_type: str) -> None:
        with pytest.raises(InvalidOption, match="media type"):
            files.put(KEY, PDF, media_type)

    def test_a_missing_object_is_an_error_except_where_one_asks_or_deletes(
        self, files: Files
    ) -> None:
        for read in (files.get, files.stream, files.head, files.open, files.verify):
            with pytest.raises(ObjectNotFound, match="there is no object nothing/here"):
                read("nothing/here")
        assert not files.exists("nothing/here")
        files.delete("nothing/here")
        assert list(files.list()) == []
        assert list(files.list("nothing")) == []

    def test_what_is_deleted_is_gone_and_can_be_stored_again(self, files: Files) -> None:
        files.put_once(KEY, PDF)
        files.delete(KEY)
        assert not files.exists(KEY)
        assert list(files.list()) == []
        files.put_once(KEY, b"another")
        assert files.get(KEY) == b"another"

    @pytest.mark.parametrize(
        "key", ["a b.pdf", "résumé/日本.txt", "a%20b", "a#b?c=d&e", "a+b", "~a'(b)*[c]", ".hidden"]
    )
    def test_unusual_keys_stay_as_they_are(self, files: Files, key: str) -> None:
        files.put(key, PDF)
        assert files.get(key) == PDF
        assert [each.key for each in files.list()] == [key]
        files.delete(key)
        assert not files.exists(key)

    @pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: ascii(key)[:20])
    def test_keys_that_lead_elsewhere_are_refused(self, files: Files, key: str) -> None:
        calls = (files.get, files.head, files.exists, files.delete, files.open, files.url)
        for call in calls:
            with pytest.raises(InvalidObjectKey):
                call(key)
        for store in (files.put, files.put_once):
            with pytest.raises(InvalidObjectKey):
                store(key, PDF)

    def test_a_folder_is_listed_with_all_below_it_and_nothing_beside_it(self, files: Files) -> None:
        for key in ("a/2", "a/1/x", "a-b/1", "ab/1", "b"):
            files.put(key, key.encode())
        assert [each.key for each in files.list("a")] == ["a/1/x", "a/2"]
        assert [each.key for each in files.list("a/")] == ["a/1/x", "a/2"]
        assert [each.key for each in files.list()] == ["a-b/1", "a/1/x", "a/2", "ab/1", "b"]
        (listed,) = files.list("ab")
        assert (listed.size, listed.modified_at.tzinfo is not None) == (4, True)

    def test_a_list_may_be_longer_than_a_page(self, files: Files) -> None:
        keys = [f"many/{number:05}" for number in range(MANY)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: files.put(key, b"x"), keys))
        assert [each.key for each in files.list("many")] == keys

    def test_a_large_object_is_stored_in_parts_and_streamed_in_blocks(self, files: Files) -> None:
        record = files.put("large.bin", large())
        assert (record.size, record.sha256) == (LARGE, large_sha256())
        assert files.head("large.bin") == record
        digest = hashlib.sha256()
        for block in files.stream("large.bin"):
            assert len(block) <= LARGE // 2
            digest.update(block)
        assert digest.hexdigest() == record.sha256

    def test_memory_does_not_grow_with_the_size(self, files: Files) -> None:
        blocks = 64
        tracemalloc.start()
        try:
            files.put_once("huge.bin", (bytes([n]) * 1_000_000 for n in range(blocks)))
            size = sum(len(block) for block in files.stream("huge.bin"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size == blocks * 1_000_000
        assert peak < size // 2

    def test_an_open_object_is_read_where_it_is_needed(self, files: Files) -> None:
        content = b"".join(large())
        files.put("large.bin", content)
        with files.open("large.bin") as file:
            assert file.read(10) == content[:10]
            file.seek(-10, io.SEEK_END)
            assert file.read() == content[-10:]
            assert file.read(1) == b""
            for position in (3_000_000, 17, LARGE - 1):
                file.seek(position)
                assert file.tell() == position
                assert file.read(5) == content[position : position + 5]
            with pytest.raises(ValueError, match="before the start"):
                file.seek(-1)

    def test_an_open_object_is_never_a_mixture_of_two(self, files: Files) -> None:
        old, new = b"o" * 3_000_000, b"n" * 3_000_000
        files.put(KEY, old)
        with files.open(KEY) as file:
            first = file.read(10)
            files.put(KEY, new)
            file.seek(2_500_000)
            try:
                rest = file.read(10)
            except ObjectCorrupted:
                rest = first
        assert first == rest == b"o" * 10

    def test_the_same_content_stored_once_more_is_the_same_object(self, files: Files) -> None:
        record = files.put_once(KEY, PDF)
        assert files.put_once(KEY, PDF) == record
        assert files.put_once(KEY, iter([PDF])) == record
        assert files.get(KEY) == PDF

    def test_other_content_under_a_stored_key_is_refused(self, files: Files) -> None:
        files.put_once(KEY, PDF)
        for other in (b"another", PDF[::-1], b""):
            with pytest.raises(ObjectExists, match="already holds other content"):
                files.put_once(KEY, other)
        assert files.get(KEY) == PDF

    def test_a_large_object_is_stored_once_as_well(self, files: Files) -> None:
        record = files.put_once("large.bin", large())
        assert files.put_once("large.bin", large()) == record
        with pytest.raises(ObjectExists):
            files.put_once("large.bin", b"small")
        assert files.verify("large.bin").sha256 == large_sha256()

    def test_many_may_store_the_same_content_at_once(self, files: Files) -> None:
        with ThreadPoolExecutor(8) as pool:
            records = set(pool.map(lambda _: files.put_once(KEY, PDF), range(16)))
        assert records == {files.head(KEY)}

    def test_of_different_contents_stored_at_once_one_stays_whole(self, files: Files) -> None:
        contents = [bytes([number]) * 1000 for number in range(8)]

        def store(content: bytes) -> StoredFile | None:
            try:
                return files.put_once(KEY, content)
            except ObjectExists:
                return None

        with ThreadPoolExecutor(8) as pool:
            records = list(pool.map(store, contents))
        stayed = files.get(KEY)
        assert stayed in contents
        assert records[contents.index(stayed)] == files.head(KEY)
        # A writer whose content was overwritten has a record that tells so.
        for record in filter(None, records):
            if record.sha256 != sha256(stayed):
                with pytest.raises(ObjectCorrupted):
                    files.get(KEY, sha256=record.sha256)

    def test_a_key_made_from_the_content_names_it(self, files: Files, tmp_path: Path) -> None:
        path = tmp_path / "invoice.pdf"
        path.write_bytes(PDF)
        key = content_key("pdf/", path, ".pdf")
        assert key == content_key("pdf", PDF, ".pdf") == f"pdf/{sha256(PDF)}.pdf"
        assert files.put_once(key, path).sha256 in key

    def test_an_expected_checksum_finds_an_object_that_was_swapped(self, files: Files) -> None:
        record = files.put(KEY, PDF)
        assert files.get(KEY, sha256=record.sha256.upper()) == PDF
        files.put(KEY, b"another")
        for read in (
            files.get,
            files.verify,
            lambda key, sha256: b"".join(files.stream(key, sha256=sha256)),
        ):
            with pytest.raises(ObjectCorrupted, match="expected"):
                read(KEY, sha256=record.sha256)

    @pytest.mark.parametrize("expires", [0, "8d", "0.5ms"])
    def test_a_link_is_valid_for_a_second_to_seven_days(self, files: Files, expires: str) -> None:
        with pytest.raises(InvalidOption, match="1 second to 7 days"):
            files.url(KEY, expires)

    async def test_the_async_version_does_the_same(self, files: Files) -> None:
        aio = files.aio
        record = await aio.put(KEY, PDF)
        assert await aio.get(KEY) == PDF
        assert await aio.head(KEY) == await aio.verify(KEY) == record
        assert await aio.put_once(KEY, PDF) == record
        with pytest.raises(ObjectExists):
            await aio.put_once(KEY, b"another")
        assert [each async for each in aio.list("invoices")] == list(files.list("invoices"))
        assert "0042.pdf" in await aio.url(KEY)
        await aio.delete(KEY)
        assert not await aio.exists(KEY)
        with pytest.raises(ObjectNotFound):
            await anext(aio.stream(KEY))

    async def test_an_async_stream_goes_in_and_comes_out(self, files: Files) -> None:
        async def source() -> AsyncIterator[bytes]:
            for block in large():
                yield block

        record = await files.aio.put("large.bin", source())
        assert record.sha256 == large_sha256()
        digest = hashlib.sha256()
        async for block in files.aio.stream("large.bin"):
            digest.update(block)
        assert digest.hexdigest() == record.sha256

    async def test_an_async_stream_can_be_left_early(self, files: Files) -> None:
        await files.aio.put("large.bin", large())
        stream = files.aio.stream("large.bin")
        assert await anext(stream)
        await stream.aclose()
        reading = asyncio.create_task(anext(files.aio.stream("large.bin")))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    def test_a_list_is_in_the_order_of_its_keys(self, files: Files) -> None:
        for key in ("b/a", "b.a", "B", "ä", "a/z/1", "a/z0"):
            files.put(key, b"x")
        found: list[ListedFile] = list(files.list())
        assert all(a.key.encode() < b.key.encode() for a, b in pairwise(found))
