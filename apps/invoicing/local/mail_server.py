"""A mail server for this machine: it delivers nothing and keeps every message that it accepted."""

from __future__ import annotations

import asyncio
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as SmtpSession

HOST = "127.0.0.1"


class MailServer:
    """Serves SMTP from a thread. A message accepted twice is two files, unlike with the application's own directory."""

    def __init__(self, directory: Path) -> None:
        """Take the directory; `start` listens."""
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._accepted = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail", daemon=True)

    def start(self) -> str:
        """Listen on a free port and return the URL."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(
            self._loop.create_server(lambda: SMTP(self, loop=self._loop), HOST, 0), self._loop
        )
        self._server = listening.result()
        return f"smtp://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Stop; the messages stay."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def handle_DATA(self, server: SMTP, session: SmtpSession, envelope: Envelope) -> str:  # noqa: N802
        """Keep a message before it is accepted."""
        self._accepted += 1
        content = envelope.content
        assert isinstance(content, bytes)
        (self._directory / f"{self._accepted:05}.eml").write_bytes(content)
        return "250 OK"

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def read_mailbox(directory: Path) -> list[EmailMessage]:
    """Read every message, in the order of their arrival."""
    files = sorted(directory.glob("*.eml"))
    return [message_from_bytes(each.read_bytes(), policy=policy.default) for each in files]
