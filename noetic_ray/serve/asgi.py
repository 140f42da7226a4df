"""The app: routes, what guards them, and how everything ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noetic_ray.channels import Channel
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.harness.harness import Harness
from noetic_ray.serve.agents import Agents
from noetic_ray.serve.chat import ChatRoute
from noetic_ray.serve.guard import Guard, check_token
from noetic_ray.serve.openapi import describe
from noetic_ray.serve.problems import Problem, internal, json_response, of_error
from noetic_ray.serve.run_routes import RunRoutes
from noetic_ray.serve.service import Service


def build_app(
    harness: Harness,
    agents: Any,
    *,
    token: str | None,
    channels: Iterable[Channel[Any]],
    max_body: int,
    close_harness: bool,
) -> Starlette:
    """See `noetic_ray.serve.make_app`."""
    check_token(token)
    if not isinstance(max_body, int) or max_body < 1:
        raise ConfigError("INVALID_MAX_BODY", f"max_body is {max_body!r}", "give a number of bytes")
    service = Service(harness, Agents(agents), channels, max_body, close_harness)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(harness.open)
        try:
            yield
        finally:
            await service.aclose()

    made = Starlette(
        routes=_routes(service, secured=token is not None),
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={
            Problem: _problem,
            NoeticError: _our_error,
            HTTPException: _http_error,
            Exception: _fault,
        },
        lifespan=lifespan,
    )
    made.router.redirect_slashes = False
    made.state.service = service
    return made


def _routes(service: Service, secured: bool) -> list[Route]:
    plain, runs = _PlainRoutes(service, secured), RunRoutes(service)
    one = "/v1/runs/{run_id}"
    return [
        Route("/healthz", plain.health),
        Route("/openapi.json", plain.openapi),
        Route("/v1/models", plain.models),
        Route("/v1/models/{model:path}", plain.model),
        Route("/v1/chat/completions", ChatRoute(service).answer, methods=["POST"]),
        Route("/v1/runs", runs.start, methods=["POST"]),
        Route("/v1/runs", runs.list),
        Route(one, runs.show),
        Route(one + "/events", runs.events),
        Route(one + "/messages", runs.messages),
        Route(one + "/messages/{message_id:path}", runs.message),
        Route(one + "/trace", runs.trace),
        Route(one + "/abort", runs.abort, methods=["POST"]),
        Route(one + "/channels/{channel}", runs.send, methods=["POST"]),
    ]


class _PlainRoutes:
    """What does not concern a run."""

    def __init__(self, service: Service, secured: bool) -> None:
        self._service = service
        self._description = describe(secured)

    async def health(self, request: Request) -> Response:
        """`GET /healthz`."""
        return json_response({"status": "ok"})

    async def openapi(self, request: Request) -> Response:
        """`GET /openapi.json`."""
        return json_response(self._description)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        data = [self._model(name) for name in self._service.agents]
        return json_response({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """`GET /v1/models/{model}`."""
        name, _ = self._service.agents.named(request.path_params["model"], "model")
        return json_response(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        created = self._service.started_at
        return {"id": name, "object": "model", "created": created, "owned_by": "noetic-ray"}


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, NoeticError)
    return of_error(error).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = f"{request.method} {request.url.path}: {error.detail}"
    kind = "not_found" if error.status_code == 404 else "invalid_request"
    return Problem(error.status_code, kind, said, headers=error.headers).response()


async def _fault(request: Request, error: Exception) -> Response:
    """The error itself is raised again behind this answer, for the server's log."""
    return internal().response()
