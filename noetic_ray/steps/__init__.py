"""Steps: what is to be done, as immutable values, and the functions that make them."""

from noetic_ray.steps.assistant import Assistant, AssistantReply, Completion, ToolOutcome
from noetic_ray.steps.base import Backoff, Retry, Step
from noetic_ray.steps.builders import (
    call_model,
    conditional,
    every,
    in_parallel,
    invoke_tool,
    loop,
    run_code,
    sequence,
    spawn,
    step,
    with_context,
)
from noetic_ray.steps.kinds import (
    CallModel,
    Conditional,
    Every,
    InParallel,
    InvokeTool,
    Loop,
    Mode,
    RunCode,
    Spawn,
    StepSequence,
    WithContext,
)
from noetic_ray.steps.output import output_adapter

__all__ = [
    "Assistant",
    "AssistantReply",
    "Backoff",
    "CallModel",
    "Completion",
    "Conditional",
    "Every",
    "InParallel",
    "InvokeTool",
    "Loop",
    "Mode",
    "Retry",
    "RunCode",
    "Spawn",
    "Step",
    "StepSequence",
    "ToolOutcome",
    "WithContext",
    "call_model",
    "conditional",
    "every",
    "in_parallel",
    "invoke_tool",
    "loop",
    "output_adapter",
    "run_code",
    "sequence",
    "spawn",
    "step",
    "with_context",
]
