"""Swarms of agents on Ray: every execution context is an actor that owns its log.

Names are imported when they are first used, so that a process pays only for what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "noetic_ray.client.message": ("Message",),
    "noetic_ray.client.spaces": ("Space",),
    "noetic_ray.client.trace_node": ("TraceNode",),
    "noetic_ray.client.trace_records": (
        "ParallelInput",
        "SpaceRecord",
        "TraceLog",
        "TraceNodeOption",
        "TraceNodeRecord",
    ),
    "noetic_ray.harness.session": ("Session",),
    "noetic_ray.harness.trace_view": ("TraceView",),
    "noetic_ray.mcp.results": ("McpRecord", "Page", "Sample", "ToolResult"),
    "noetic_ray.mcp.servers": ("McpServer",),
    "noetic_ray.mcp.tools": ("McpTools", "mcp_tools"),
    "noetic_ray.steps.assistant": ("AssistantReply", "Completion", "ToolOutcome", "assistant"),
    "noetic_ray.channels": ("Channel", "channel"),
    "noetic_ray.context": ("Context", "ContextRef", "ContextSnapshot", "DetachedHandle"),
    "noetic_ray.errors": (
        "BudgetExceeded",
        "Cancelled",
        "ChannelClosed",
        "ChannelSchemaError",
        "ChannelTimeout",
        "ConfigError",
        "ContextLost",
        "DuplicateItem",
        "ErrorRecord",
        "ItemSchemaMismatch",
        "McpError",
        "MessageError",
        "ModelFailed",
        "ModelParseError",
        "ModelRateLimited",
        "ModelRefused",
        "NoeticError",
        "ParallelFailed",
        "SteeringDenied",
        "StepFailed",
        "TraceError",
    ),
    "noetic_ray.harness.harness": ("Harness",),
    "noetic_ray.harness.hooks": ("Hooks",),
    "noetic_ray.harness.report": ("AbortReport", "Approval", "HarnessResponse"),
    "noetic_ray.harness.run": ("Run",),
    "noetic_ray.items": (
        "ExtensionItem",
        "FileSearchCallItem",
        "FunctionCallItem",
        "FunctionCallOutputItem",
        "ImageGenerationCallItem",
        "InputFile",
        "InputImage",
        "InputText",
        "Item",
        "MessageItem",
        "OutputText",
        "ReasoningItem",
        "ReasoningText",
        "Refusal",
        "SummaryText",
        "WebSearchCallItem",
        "assistant_message",
        "developer_message",
        "item_text",
        "parse_item",
        "system_message",
        "user_message",
    ),
    "noetic_ray.journal.events": ("Event", "RunInfo"),
    "noetic_ray.journal.fold": ("ContextTree",),
    "noetic_ray.layers.base": ("ContextLayer",),
    "noetic_ray.layers.cache_config": ("ContextCache",),
    "noetic_ray.layers.hooks": (
        "UNSET",
        "Allow",
        "Appended",
        "Deny",
        "Guide",
        "Merge",
        "Provided",
        "Recall",
        "SpawnSeed",
        "Update",
    ),
    "noetic_ray.layers.provides": ("layer_data", "layer_function"),
    "noetic_ray.layers.window": ("Window",),
    "noetic_ray.harness.window_view": ("WindowView",),
    "noetic_ray.log": ("ItemLog",),
    "noetic_ray.models.protocol": ("Model", "ModelReply", "ModelRequest"),
    "noetic_ray.placement": ("Placement",),
    "noetic_ray.request": ("RequestInfo",),
    "noetic_ray.results": ("SettleResult",),
    "noetic_ray.steps": (
        "Retry",
        "Step",
        "call_model",
        "conditional",
        "every",
        "in_parallel",
        "invoke_tool",
        "loop",
        "run_code",
        "sequence",
        "spawn",
        "step",
        "with_context",
    ),
    "noetic_ray.tools": ("LayerTools", "Tool", "as_tool", "layer_tools", "tool"),
    "noetic_ray.until": ("Snapshot", "Verdict"),
    "noetic_ray.usage": (
        "EpochUsage",
        "LastLayerUsage",
        "LayerUsageEntry",
        "RoundUsage",
        "StepMeta",
        "TokenUsage",
    ),
}
_MODULES = ("layers", "models", "serve", "testing", "until")
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = sorted([*_WHERE, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"noetic_ray.{name}")
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'noetic_ray' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from noetic_ray import layers as layers
    from noetic_ray import models as models
    from noetic_ray import serve as serve
    from noetic_ray import testing as testing
    from noetic_ray import until as until
    from noetic_ray.channels import Channel as Channel
    from noetic_ray.channels import channel as channel
    from noetic_ray.client.message import Message as Message
    from noetic_ray.client.spaces import Space as Space
    from noetic_ray.client.trace_node import TraceNode as TraceNode
    from noetic_ray.client.trace_records import ParallelInput as ParallelInput
    from noetic_ray.client.trace_records import SpaceRecord as SpaceRecord
    from noetic_ray.client.trace_records import TraceLog as TraceLog
    from noetic_ray.client.trace_records import TraceNodeOption as TraceNodeOption
    from noetic_ray.client.trace_records import TraceNodeRecord as TraceNodeRecord
    from noetic_ray.context import Context as Context
    from noetic_ray.context import ContextRef as ContextRef
    from noetic_ray.context import ContextSnapshot as ContextSnapshot
    from noetic_ray.context import DetachedHandle as DetachedHandle
    from noetic_ray.errors import BudgetExceeded as BudgetExceeded
    from noetic_ray.errors import Cancelled as Cancelled
    from noetic_ray.errors import ChannelClosed as ChannelClosed
    from noetic_ray.errors import ChannelSchemaError as ChannelSchemaError
    from noetic_ray.errors import ChannelTimeout as ChannelTimeout
    from noetic_ray.errors import ConfigError as ConfigError
    from noetic_ray.errors import ContextLost as ContextLost
    from noetic_ray.errors import DuplicateItem as DuplicateItem
    from noetic_ray.errors import ErrorRecord as ErrorRecord
    from noetic_ray.errors import ItemSchemaMismatch as ItemSchemaMismatch
    from noetic_ray.errors import McpError as McpError
    from noetic_ray.errors import MessageError as MessageError
    from noetic_ray.errors import ModelFailed as ModelFailed
    from noetic_ray.errors import ModelParseError as ModelParseError
    from noetic_ray.errors import ModelRateLimited as ModelRateLimited
    from noetic_ray.errors import ModelRefused as ModelRefused
    from noetic_ray.errors import NoeticError as NoeticError
    from noetic_ray.errors import ParallelFailed as ParallelFailed
    from noetic_ray.errors import SteeringDenied as SteeringDenied
    from noetic_ray.errors import StepFailed as StepFailed
    from noetic_ray.errors import TraceError as TraceError
    from noetic_ray.harness.harness import Harness as Harness
    from noetic_ray.harness.hooks import Hooks as Hooks
    from noetic_ray.harness.report import AbortReport as AbortReport
    from noetic_ray.harness.report import Approval as Approval
    from noetic_ray.harness.report import HarnessResponse as HarnessResponse
    from noetic_ray.harness.run import Run as Run
    from noetic_ray.harness.session import Session as Session
    from noetic_ray.harness.trace_view import TraceView as TraceView
    from noetic_ray.harness.window_view import WindowView as WindowView
    from noetic_ray.items import ExtensionItem as ExtensionItem
    from noetic_ray.items import FileSearchCallItem as FileSearchCallItem
    from noetic_ray.items import FunctionCallItem as FunctionCallItem
    from noetic_ray.items import FunctionCallOutputItem as FunctionCallOutputItem
    from noetic_ray.items import ImageGenerationCallItem as ImageGenerationCallItem
    from noetic_ray.items import InputFile as InputFile
    from noetic_ray.items import InputImage as InputImage
    from noetic_ray.items import InputText as InputText
    from noetic_ray.items import Item as Item
    from noetic_ray.items import MessageItem as MessageItem
    from noetic_ray.items import OutputText as OutputText
    from noetic_ray.items import ReasoningItem as ReasoningItem
    from noetic_ray.items import ReasoningText as ReasoningText
    from noetic_ray.items import Refusal as Refusal
    from noetic_ray.items import SummaryText as SummaryText
    from noetic_ray.items import WebSearchCallItem as WebSearchCallItem
    from noetic_ray.items import assistant_message as assistant_message
    from noetic_ray.items import developer_message as developer_message
    from noetic_ray.items import item_text as item_text
    from noetic_ray.items import parse_item as parse_item
    from noetic_ray.items import system_message as system_message
    from noetic_ray.items import user_message as user_message
    from noetic_ray.journal.events import Event as Event
    from noetic_ray.journal.events import RunInfo as RunInfo
    from noetic_ray.journal.fold import ContextTree as ContextTree
    from noetic_ray.layers.base import ContextLayer as ContextLayer
    from noetic_ray.layers.cache_config import ContextCache as ContextCache
    from noetic_ray.layers.hooks import UNSET as UNSET
    from noetic_ray.layers.hooks import Allow as Allow
    from noetic_ray.layers.hooks import Appended as Appended
    from noetic_ray.layers.hooks import Deny as Deny
    from noetic_ray.layers.hooks import Guide as Guide
    from noetic_ray.layers.hooks import Merge as Merge
    from noetic_ray.layers.hooks import Provided as Provided
    from noetic_ray.layers.hooks import Recall as Recall
    from noetic_ray.layers.hooks import SpawnSeed as SpawnSeed
    from noetic_ray.layers.hooks import Update as Update
    from noetic_ray.layers.provides import layer_data as layer_data
    from noetic_ray.layers.provides import layer_function as layer_function
    from noetic_ray.layers.window import Window as Window
    from noetic_ray.log import ItemLog as ItemLog
    from noetic_ray.mcp.results import McpRecord as McpRecord
    from noetic_ray.mcp.results import Page as Page
    from noetic_ray.mcp.results import Sample as Sample
    from noetic_ray.mcp.results import ToolResult as ToolResult
    from noetic_ray.mcp.servers import McpServer as McpServer
    from noetic_ray.mcp.tools import McpTools as McpTools
    from noetic_ray.mcp.tools import mcp_tools as mcp_tools
    from noetic_ray.models.protocol import Model as Model
    from noetic_ray.models.protocol import ModelReply as ModelReply
    from noetic_ray.models.protocol import ModelRequest as ModelRequest
    from noetic_ray.placement import Placement as Placement
    from noetic_ray.request import RequestInfo as RequestInfo
    from noetic_ray.results import SettleResult as SettleResult
    from noetic_ray.steps import Retry as Retry
    from noetic_ray.steps import Step as Step
    from noetic_ray.steps import call_model as call_model
    from noetic_ray.steps import conditional as conditional
    from noetic_ray.steps import every as every
    from noetic_ray.steps import in_parallel as in_parallel
    from noetic_ray.steps import invoke_tool as invoke_tool
    from noetic_ray.steps import loop as loop
    from noetic_ray.steps import run_code as run_code
    from noetic_ray.steps import sequence as sequence
    from noetic_ray.steps import spawn as spawn
    from noetic_ray.steps import step as step
    from noetic_ray.steps import with_context as with_context
    from noetic_ray.steps.assistant import AssistantReply as AssistantReply
    from noetic_ray.steps.assistant import Completion as Completion
    from noetic_ray.steps.assistant import ToolOutcome as ToolOutcome
    from noetic_ray.steps.assistant import assistant as assistant
    from noetic_ray.tools import LayerTools as LayerTools
    from noetic_ray.tools import Tool as Tool
    from noetic_ray.tools import as_tool as as_tool
    from noetic_ray.tools import layer_tools as layer_tools
    from noetic_ray.tools import tool as tool
    from noetic_ray.until import Snapshot as Snapshot
    from noetic_ray.until import Verdict as Verdict
    from noetic_ray.usage import EpochUsage as EpochUsage
    from noetic_ray.usage import LastLayerUsage as LastLayerUsage
    from noetic_ray.usage import LayerUsageEntry as LayerUsageEntry
    from noetic_ray.usage import RoundUsage as RoundUsage
    from noetic_ray.usage import StepMeta as StepMeta
    from noetic_ray.usage import TokenUsage as TokenUsage
