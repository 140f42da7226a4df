"""What the models of these tests answer, by the model's name."""

from __future__ import annotations

from typing import Any

import noetic_ray as nr

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "adds": ("add", {"a": 2, "b": 3}),
    "adds_wrongly": ("add", {"a": "SECRET-ARGUMENT", "b": 3}),
    "asks_agent": ("add", {"input": "SECRET-ARGUMENT"}),
    "calls_nobody": ("nobody", {}),
}


def play(request: Any) -> Any:
    """Answer once in words, or call a tool and then say what it gave."""
    if request.model == "breaks":
        raise ValueError("no answer today")
    call = CALLS.get(request.model)
    given = [item for item in request.items if item.type == "function_call_output"]
    if call is None or given:
        text = given[-1].output if given else "hello"
        reply = nr.testing.reply(text, input_tokens=10, output_tokens=5, cached_tokens=4, cost=0.01)
        reply.model = f"{request.model}-2026"
        reply.response_id, reply.finish_reasons = "resp_1", ("stop",)
        return reply
    name, arguments = call
    calls = [nr.testing.call(name, **arguments)]
    return nr.testing.reply(calls=calls, input_tokens=7, output_tokens=1)
