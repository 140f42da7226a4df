"""The public names are a promise: adding or removing one means changing this list too."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Union, get_origin

import pytest

import noetic_ray as nr

_NAMES = """
    AbortReport Allow Appended Approval AssistantReply BudgetExceeded Cancelled Channel
    ChannelClosed ChannelSchemaError ChannelTimeout Completion ConfigError Context ContextCache
    ContextLayer ContextLost ContextRef ContextSnapshot ContextTree Deny DetachedHandle
    DuplicateItem EpochUsage ErrorRecord Event ExtensionItem FileSearchCallItem FunctionCallItem
    FunctionCallOutputItem Guide Harness HarnessResponse Hooks ImageGenerationCallItem InputFile
    InputImage InputText Item ItemLog ItemSchemaMismatch LastLayerUsage LayerTools LayerUsageEntry
    McpError McpRecord McpServer McpTools Merge Message MessageError MessageItem Model ModelFailed
    ModelParseError ModelRateLimited ModelRefused ModelReply ModelRequest NoeticError OutputText
    Page ParallelFailed ParallelInput Placement Provided ReasoningItem ReasoningText Recall
    Refusal RequestInfo Retry RoundUsage Run RunInfo Sample Session SettleResult Snapshot Space
    SpaceRecord SpawnSeed SteeringDenied Step StepFailed StepMeta SummaryText TokenUsage Tool
    ToolOutcome ToolResult TraceError TraceLog TraceNode TraceNodeOption TraceNodeRecord TraceView
    UNSET Update Verdict WebSearchCallItem Window WindowView __version__ as_tool assistant
    assistant_message call_model channel conditional developer_message every in_parallel
    invoke_tool item_text layer_data layer_function layer_tools layers loop mcp_tools models
    parse_item run_code sequence serve spawn step system_message testing tool until user_message
    with_context
"""
_UNTIL = """
    converged custom max_cost max_duration max_steps never no_tool_calls output_contains
    output_equals verified
"""
_MODELS = "Model ModelEvents ModelReply ModelRequest OpenAI OutputSpec ToolSpec"
NAMES, UNTIL = _NAMES.split(), _UNTIL.split()
_LAYERS = """
    AppendParams ChildInfo CompleteParams DeltaParams DisposeParams InitParams LayerHandle
    LayerStorage ModelCallParams ProjectParams RecallParams Response ReturnParams SpawnParams
    StoreParams ToolCallParams episodic history instructions observations scratchpad
    semantic_recall slots steering task_state temporal tool_calls
"""
MODULES = {
    "layers": _LAYERS.split(),
    "models": _MODELS.split(),
    "testing": ["Answer", "ScriptedModel", "call", "reply"],
}
HEAVY = ("ray", "pydantic", "httpx", "aiohttp", "opentelemetry", "rich", "typer", "genai_prices")


def test_the_public_names_are_these() -> None:
    assert list(nr.__all__) == sorted(NAMES)
    assert dir(nr) == list(nr.__all__)


def test_the_public_names_of_the_public_modules_are_these() -> None:
    for name, names in MODULES.items():
        assert sorted(getattr(nr, name).__all__) == names
    found = {n for n in UNTIL if inspect.isfunction(getattr(nr.until, n))}
    assert found == set(UNTIL)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(nr, name)
    assert value is not None
    if name == "__version__" or get_origin(value) is Union or _is_alias(value):
        return
    said = _own_doc(value)
    assert said, f"{name} has no docstring"
    assert not said.startswith(f"{name}("), f"{name} has only the docstring dataclass made"


def _is_alias(value: Any) -> bool:
    """`Item` is a union of the item classes, each with a docstring of its own."""
    return not isinstance(value, type | ModuleType) and not callable(value)


def _own_doc(value: Any) -> str:
    return (value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__) or ""


@pytest.mark.parametrize("name", NAMES)
def test_the_public_methods_of_a_class_are_documented(name: str) -> None:
    value = getattr(nr, name)
    if not isinstance(value, type):
        return
    bare = [
        method
        for method, held in vars(value).items()
        if not method.startswith("_") and _is_method(held) and not _doc_of(value, method, held)
    ]
    assert bare == [], f"{name} has methods without a docstring"


def _is_method(held: object) -> bool:
    return inspect.isfunction(held) or isinstance(held, property | classmethod | staticmethod)


def _doc_of(owner: type, name: str, held: Any) -> str | None:
    return held.__doc__ or inspect.getdoc(getattr(owner, name))


def test_a_type_checker_sees_the_names_that_are_there_at_run_time() -> None:
    source = Path(inspect.getfile(nr)).read_text("utf-8")
    typed = {line.split(" as ")[-1] for line in source.splitlines() if " as " in line}
    assert typed == set(NAMES) - {"__version__"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nothing'"):
        nr.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, noetic_ray\n"
        "assert 'Harness' in dir(noetic_ray) and noetic_ray.__version__\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert [name for name in HEAVY if repr(name) in done.stdout] == []


def test_describing_agents_does_not_import_ray() -> None:
    code = (
        "import sys, noetic_ray as nr\n"
        "[getattr(nr, name) for name in nr.__all__]\n"
        "assert 'ray' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
