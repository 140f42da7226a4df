"""`/v1/runs`: runs started, watched and aborted over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict, fields
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noetic_ray.canonical import to_json_bytes
from noetic_ray.client.trace_records import TraceNodeRecord
from noetic_ray.errors import NoeticError
from noetic_ray.harness.run import Run
from noetic_ray.journal.events import Event
from noetic_ray.serve.answers import StreamAnswer
from noetic_ray.serve.asking import address_of, flag, request_info, since
from noetic_ray.serve.bodies import read_body
from noetic_ray.serve.following import is_read, pages
from noetic_ray.serve.problems import Problem, json_response, of_error
from noetic_ray.serve.service import Entry, Service
from noetic_ray.serve.shapes import AbortRequest, RunRequest, ValueRequest


class RunRoutes:
    """Each method answers one route."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def start(self, request: Request) -> Response:
        """`POST /v1/runs`."""
        service = self._service
        asked = await read_body(request, RunRequest, service.max_body)
        name, step = service.agents.named(asked.agent, "agent")
        info, chat_id = request_info(request, asked.model_dump(include={"metadata"}), name)
        entry = await service.start(
            name,
            step,
            asked.input,
            items=asked.items,
            state=asked.state,
            thread_id=asked.thread_id or chat_id,
            request=info,
            run_id=asked.run_id,
            timeout=asked.timeout,
        )
        headers = {"Location": address_of(request, entry.run.id)}
        return json_response(await _view(entry), 201, headers)

    async def list(self, request: Request) -> Response:
        """`GET /v1/runs`."""
        lines = [_line(entry) for entry in self._service.entries()]
        return json_response({"object": "list", "data": lines})

    async def show(self, request: Request) -> Response:
        """`GET /v1/runs/{run_id}`."""
        return json_response(await _view(self._entry(request)))

    async def events(self, request: Request) -> Response:
        """`GET /v1/runs/{run_id}/events`."""
        entry = self._entry(request)
        after, deltas = since(request), flag(request.query_params.get("deltas"))
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if entry.over and await is_read(entry.run, after):
            return Response(status_code=204)  # a browser would come back for ever otherwise
        return StreamAnswer(
            _event_parts(entry.run, after, deltas),
            lambda problem: _event("problem", problem.as_dict()),
            self._service.closing,
            lambda: None,
        )

    async def messages(self, request: Request) -> Response:
        """`GET /v1/runs/{run_id}/messages`."""
        run = self._entry(request).run
        frames = await run.amessages(request.query_params.get("accept"))
        return json_response({"object": "list", "data": frames})

    async def message(self, request: Request) -> Response:
        """`GET /v1/runs/{run_id}/messages/{message_id}`."""
        run, id = self._entry(request).run, request.path_params["message_id"]
        for message in await run.ashown():
            if message.id == id:
                told = {"type": message.type, "props": message.props, "message_id": id}
                return json_response({**told, "context_id": message.context_id})
        said = f"run {run.id!r} has no message {id!r}"
        raise Problem(404, "not_found", said, code="message_not_found")

    async def trace(self, request: Request) -> Response:
        """`GET /v1/runs/{run_id}/trace`."""
        view = await self._entry(request).run.atrace()
        return json_response(
            {
                "root": None if view.root is None else view.root.id,
                "nodes": [_node(node) for node in view.nodes],
                "spaces": [asdict(space) for space in view.spaces],
            }
        )

    async def abort(self, request: Request) -> Response:
        """`POST /v1/runs/{run_id}/abort`."""
        run = self._entry(request).run
        asked = await read_body(request, AbortRequest, self._service.max_body, empty=True)
        report = await self._service.abort(run, asked.reason)
        return json_response(asdict(report))

    async def send(self, request: Request) -> Response:
        """`POST /v1/runs/{run_id}/channels/{channel}`."""
        service, name = self._service, request.path_params["channel"]
        run = self._entry(request).run
        channel = service.channels.get(name)
        if channel is None:
            said = f"there is no channel {name!r} for clients here"
            raise Problem(404, "not_found", said, code="channel_not_found")
        asked = await read_body(request, ValueRequest, service.max_body)
        await asyncio.to_thread(lambda: service.harness.channel(channel, run.id).send(asked.value))
        return json_response({"channel": name, "accepted": True}, 202)

    def _entry(self, request: Request) -> Entry:
        return self._service.entry(request.path_params["run_id"])


def _line(entry: Entry) -> dict[str, Any]:
    run = entry.run
    return {
        "id": run.id,
        "agent": entry.agent,
        "status": run.status,
        "created_at": entry.created_at,
    }


async def _view(entry: Entry) -> dict[str, Any]:
    """A run now; figures, output and error are those of the status that is told."""
    line = _line(entry)
    output, error = await _result(entry.run) if entry.over else (None, None)
    if entry.over:
        usage, cost = entry.run.usage, entry.run.cost
    else:
        tree = await entry.run.atree()
        usage, cost = tree.tokens, tree.cost
    return {**line, "output": output, "error": error, "usage": asdict(usage), "cost": cost}


async def _result(run: Run[Any]) -> tuple[Any, dict[str, Any] | None]:
    try:
        return await run.aresult(), None
    except NoeticError as error:
        return None, of_error(error, ran=True).as_dict()


async def _event_parts(
    run: Run[Any], after: int, deltas: bool
) -> AsyncGenerator[bytes | None, None]:
    yield None  # the reader is told at once that it is connected
    async for page in pages(run, after, deltas):
        for event in page.events:
            yield _event(event.type, _told(event), event.seq)
        if not page.events:
            yield None


def _event(type: str, data: Any, seq: int | None = None) -> bytes:
    id = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (id, type.encode(), to_json_bytes(data))


def _told(event: Event) -> dict[str, Any]:
    data = event.data
    if "error" in data:
        data = {**data, "error": _without_tracebacks(data["error"])}
    return {
        "seq": event.seq,
        "type": event.type,
        "run_id": event.run_id,
        "context_id": event.context_id,
        "time": event.time,
        "data": data,
    }


def _without_tracebacks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_tracebacks(v) for k, v in value.items() if k != "traceback"}
    return [_without_tracebacks(each) for each in value] if isinstance(value, list) else value


def _node(node: TraceNodeRecord) -> dict[str, Any]:
    """A node whose children are named by their ids."""
    told = {each.name: getattr(node, each.name) for each in fields(node)}
    return {**told, "children": [child.id for child in node.children]}
