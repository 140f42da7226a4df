"""Running the app until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette

from noetic_ray.errors import ConfigError
from noetic_ray.serve.service import Service

#: Open answers have ended before this; what has not is cut off.
GRACE_SECONDS = 2
_BACKLOG = 1_024


class AppServer(uvicorn.Server):  # type: ignore[misc]
    """Ends open streams and runs before it waits for their connections to close."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)
        self._service: Service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called after SIGTERM or Ctrl-C."""
        self._service.begin_to_close()
        await super().shutdown(sockets)


def run_app(
    app: Starlette, host: str, port: int, ready: Callable[[str], Any] = lambda url: None
) -> None:
    """Serve the app until SIGTERM or Ctrl-C, which take effect again afterwards.

    `ready` gets the address; from then on connections are taken. Raises ConfigError CANNOT_LISTEN.
    """
    sock = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    try:
        ready(f"http://{shown}:{sock.getsockname()[1]}")
        AppServer(app).run(sockets=[sock])
    finally:
        sock.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections. Raises ConfigError CANNOT_LISTEN."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
        except BaseException:
            sock.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            "CANNOT_LISTEN",
            f"cannot listen on {host}, port {port}: {error}",
            "give another --port, or 0 for a free one",
        ) from None
    return sock
