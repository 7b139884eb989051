"""An application with inboxes: what their handlers wrote, and signed posts."""

from __future__ import annotations

import hmac
from typing import Any

import httpx
import msgspec

from holdfast_streams import Message
from holdfast_streams.inbox.inbox_store import INBOXES, ParkedMessage
from tests.streams.scene import Scene

SECRET = "sesame"
HEADER = "X-Signature"


class InboxScene(Scene):
    """`taken` is what handlers wrote."""

    def note(self, message: Message[Any], tx: Any) -> None:
        """Write down that a handler took a message."""
        tx.execute(self.write, (message.data["n"], message.id, None))

    def parked(self, inbox: str | None = None) -> list[ParkedMessage]:
        """What was parked."""
        return self.app.database.read(INBOXES.parked_messages(inbox, None, 1000))

    def remembered(self) -> int:
        """How many messages are remembered."""
        table = "holdfast.inbox_seen" if self.is_postgres else "holdfast_inbox_seen"
        with self.app.transaction() as tx:
            row: Any = tx.execute(f"select count(*) from {table}").fetchone()  # noqa: S608
            return int(row[0])


def signed(document: Any, secret: str = SECRET) -> dict[str, Any]:
    """What a client needs to post a document that is signed."""
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    made = hmac.digest(secret.encode(), body, "sha256").hex()
    return {"content": body, "headers": {HEADER: made}}


def over_asgi(served: Any) -> httpx.AsyncClient:
    """A client of an application in this process, that comes from another machine."""
    transport = httpx.ASGITransport(served, client=("203.0.113.7", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://shop.example")
