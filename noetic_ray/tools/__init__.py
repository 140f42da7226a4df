"""Tools: typed functions and steps that a model may call."""

from noetic_ray.tools.errors import ToolArgumentsError
from noetic_ray.tools.names import wire_names
from noetic_ray.tools.of_layers import LayerTools, layer_tools
from noetic_ray.tools.tool import FunctionTool, StepTool, Tool, as_tool, tool, tool_output

__all__ = [
    "FunctionTool",
    "LayerTools",
    "StepTool",
    "Tool",
    "ToolArgumentsError",
    "as_tool",
    "layer_tools",
    "tool",
    "tool_output",
    "wire_names",
]
