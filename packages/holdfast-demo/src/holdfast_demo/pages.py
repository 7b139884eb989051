"""The shop's page and the dashboard, served by a thread of the demo, on loopback only."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from holdfast import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.middleware import HEADERS
from holdfast_demo.local_application import LOCAL_HOST, listen
from holdfast_demo.tables import SCHEMA

DASHBOARD = "/holdfast"

_FILES = {
    "/": ("shop.html", "text/html"),
    "/shop.css": ("shop.css", "text/css"),
    "/shop.js": ("shop.js", "text/javascript"),
}


class DemoServer:
    """Serves until closed; the page's buttons become requests to the story."""

    def __init__(
        self,
        url: str,
        port: int,
        state: Callable[[], dict[str, Any]],
        request: Callable[[str], None],
        actions: Mapping[str, object],
    ) -> None:
        """Listen on the port, or on the next free one, and serve from a thread.

        `state` returns what the page shows and `request` takes an action; both are called in the server's thread.
        """
        self._socket = listen(port)
        self.address = f"http://{LOCAL_HOST}:{self._socket.getsockname()[1]}"
        self._state, self._request, self._actions = state, request, actions
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application(url),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                lifespan="on",
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=[[self._socket]], name="pages", daemon=True
        )
        self._thread.start()

    def port_note(self, port: int) -> str:
        """Return a note if the wanted port was taken."""
        taken = port and self._socket.getsockname()[1] != port
        return f"   port {port} is taken" if taken else ""

    def close(self) -> None:
        """Stop serving and close everything."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _application(self, url: str) -> Starlette:
        # A separate application: its connections belong to this thread's loop and are closed in it.
        app = Holdfast(url, schema=SCHEMA, open_types=True)
        admin = create(app, settings=read_settings({}))

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await admin.state.site.close()
            await app.aclose()

        return Starlette(
            routes=[
                *(Route(path, _file(*found)) for path, found in _FILES.items()),
                Route("/state", self._get_state),
                Route("/do/{action}", self._do, methods=["POST"]),
                Mount(DASHBOARD, admin),
            ],
            lifespan=lifespan,
        )

    def _get_state(self, _: Request) -> Response:
        return JSONResponse(self._state(), headers=HEADERS)

    async def _do(self, request: Request) -> Response:
        action = request.path_params["action"]
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return Response("cross-site requests are not allowed", 403, HEADERS)
        if action not in self._actions:
            return Response("unknown action", 404, HEADERS)
        self._request(action)
        return Response(status_code=303, headers={"location": "/", **HEADERS})


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    content = files("holdfast_demo").joinpath("static", name).read_bytes()

    def serve(_: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve
