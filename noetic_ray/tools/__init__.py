"""Tools: typed functions and steps that a model may call."""

from noetic_ray.tools.errors import ToolArgumentsError
from noetic_ray.tools.names import wire_names
from noetic_ray.tools.tool import FunctionTool, StepTool, Tool, as_tool, tool, tool_output

__all__ = [
    "FunctionTool",
    "StepTool",
    "Tool",
    "ToolArgumentsError",
    "as_tool",
    "tool",
    "tool_output",
    "wire_names",
]
