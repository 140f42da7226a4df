"""The OpenAPI description of the app, from the shapes of its bodies."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from noetic_ray.serve import shapes

_JSON = "application/json"
_SSE = "text/event-stream"
_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (
    shapes.AbortAnswer,
    shapes.AbortRequest,
    shapes.Accepted,
    shapes.ChatCompletion,
    shapes.ChatRequest,
    shapes.ErrorAnswer,
    shapes.FrameList,
    shapes.Health,
    shapes.MessageAnswer,
    shapes.Model,
    shapes.ModelList,
    shapes.RunAnswer,
    shapes.RunList,
    shapes.RunRequest,
    shapes.TraceAnswer,
    shapes.ValueRequest,
)
_RUN = {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}}
_ACCEPT = {
    "name": "accept",
    "in": "query",
    "description": "The format of frames: standard (OpenAI's chunks), cui-web, cui-native or "
    "cui-desktop; anything else counts as standard.",
    "schema": {"type": "string"},
}
_DETACHED = {
    "name": "X-Noetic-Detached",
    "in": "header",
    "description": "1 lets the run go on when the client has gone.",
    "schema": {"type": "string"},
}


def describe(secured: bool) -> dict[str, Any]:
    """The document; with `secured` all but the health check ask for the token."""
    _, defined = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_REF)
    components: dict[str, Any] = {"schemas": defined["$defs"]}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "noetic-ray", "version": _version()},
        "paths": _paths(),
        "components": components,
    }
    if secured:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        document["paths"]["/healthz"]["get"]["security"] = []
    return document


def _version() -> str:
    import noetic_ray

    return noetic_ray.__version__


def _paths() -> dict[str, Any]:
    run = "/v1/runs/{run_id}"
    return {
        "/healthz": {"get": _operation("health", "Whether the server answers.", "Health")},
        "/openapi.json": {
            "get": _operation("openapi", "This document.", {"type": "object"}),
        },
        "/v1/models": {"get": _operation("models", "The agents.", "ModelList")},
        "/v1/models/{model}": {
            "get": _operation("model", "An agent.", "Model", [{**_RUN, "name": "model"}])
        },
        "/v1/chat/completions": {"post": _chat()},
        "/v1/runs": {
            "get": _operation("list_runs", "The runs of this server.", "RunList"),
            "post": _operation(
                "start_run", "Start a run.", "RunAnswer", status="201", body="RunRequest"
            ),
        },
        run: {"get": _operation("run", "A run now.", "RunAnswer", [_RUN])},
        run + "/events": {"get": _events()},
        run + "/messages": {
            "get": _operation("messages", "The messages so far.", "FrameList", [_RUN, _ACCEPT])
        },
        run + "/messages/{message_id}": {
            "get": _operation(
                "message",
                "A message as it stands.",
                "MessageAnswer",
                [_RUN, {**_RUN, "name": "message_id"}],
            )
        },
        run + "/trace": {"get": _operation("trace", "What was traced.", "TraceAnswer", [_RUN])},
        run + "/abort": {
            "post": _operation(
                "abort_run", "Abort the run and wait for its end.", "AbortAnswer", [_RUN],
                body="AbortRequest", body_required=False,
            )
        },
        run + "/channels/{channel}": {
            "post": _operation(
                "send", "Send a value to a channel.", "Accepted",
                [_RUN, {**_RUN, "name": "channel"}], status="202", body="ValueRequest",
            )
        },
    }  # fmt: skip


def _operation(
    id: str,
    summary: str,
    answer: str | dict[str, Any],
    parameters: list[dict[str, Any]] | None = None,
    *,
    status: str = "200",
    body: str | None = None,
    body_required: bool = True,
) -> dict[str, Any]:
    schema = answer if isinstance(answer, dict) else _ref(answer)
    told: dict[str, Any] = {
        "operationId": id,
        "summary": summary,
        "responses": {
            status: {"description": summary, "content": {_JSON: {"schema": schema}}},
            "default": {
                "description": "What went wrong.",
                "content": {_JSON: {"schema": _ref("ErrorAnswer")}},
            },
        },
    }
    if parameters:
        told["parameters"] = parameters
    if body is not None:
        told["requestBody"] = {
            "required": body_required,
            "content": {_JSON: {"schema": _ref(body)}},
        }
    return told


def _chat() -> dict[str, Any]:
    summary = "Let an agent answer; with `stream` as server-sent events."
    told = _operation("chat", summary, "ChatCompletion", [_ACCEPT, _DETACHED], body="ChatRequest")
    told["responses"]["200"]["content"][_SSE] = {}
    return told


def _events() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
    told = _operation("events", "The events of the run, to its end.", {"type": "string"})
    told["responses"]["200"]["content"] = {_SSE: {}}
    told["responses"]["204"] = {"description": "The run has ended, and all of it was read."}
    told["parameters"] = [
        _RUN,
        {"name": "since", "in": "query", "schema": number},
        {"name": "Last-Event-ID", "in": "header", "schema": number},
        {"name": "deltas", "in": "query", "schema": {"type": "string", "enum": ["0", "1"]}},
    ]
    return told


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=name)}
