"""A well-behaved server on the SDK: `echo.py` over stdio, `echo.py http PORT` over HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import EmbeddedResource, TextContent, TextResourceContents

server = MCPServer("echo")


@server.tool()
def ping(count: int = 1, message: str = "pong") -> dict[str, Any]:
    """Answer with what was sent."""
    return {"message": message, "count": count}


@server.tool(structured_output=False)
def status() -> str:
    """Say that all is well, and in which process."""
    return f'{{"online": true, "pid": {os.getpid()}}}'


@server.tool(structured_output=False)
def echo(text: str = "") -> str:
    """Say it again."""
    return text


@server.tool(structured_output=False)
def boom() -> str:
    """Fail."""
    raise ToolError("kaput")


@server.tool(structured_output=False)
async def slow(ms: int, tag: str) -> str:
    """Take a while."""
    await asyncio.sleep(ms / 1000)
    return tag


@server.tool(structured_output=False)
def nil() -> str:
    """Answer with an empty text."""
    return ""


@server.tool(structured_output=False)
def text() -> str:
    """Answer with a text that is no JSON."""
    return "plain words"


@server.tool(structured_output=False)
def two() -> list[Any]:
    """Answer with two blocks."""
    return [TextContent(type="text", text='{"n": 1}'), TextContent(type="text", text="second")]


@server.tool(structured_output=False)
def pic() -> Image:
    """Answer with a picture."""
    return Image(data=base64.b64decode("iVBORw0KGgo="), format="png")


@server.tool(structured_output=False)
def document() -> list[Any]:
    """Answer with an embedded resource."""
    held = TextResourceContents(uri="echo://doc", text="inside", mime_type="text/plain")
    return [EmbeddedResource(type="resource", resource=held)]


@server.tool()
def number() -> int:
    """Answer with a number: the SDK boxes it."""
    return 7


@server.tool()
def numbers() -> list[int]:
    """Answer with a list: the SDK boxes it."""
    return [1, 2]


@server.tool(structured_output=False)
def variable(name: str) -> str:
    """The value of an environment variable."""
    return os.environ.get(name, "")


@server.resource("echo://info", name="info", mime_type="application/json")
def info() -> str:
    """What this server is."""
    return '{"name": "echo"}'


@server.resource("echo://health", name="health")
def health() -> str:
    """How it is."""
    return '{"check": ""}'


@server.resource("echo://health{?check}", name="health-check")
def health_check(check: str = "") -> str:
    """How a part of it is."""
    return f'{{"check": "{check}"}}'


@server.prompt("test_connection")
def ask_for_test(detailed: str = "no") -> str:
    """Ask for a test of the connection."""
    return f"Test the connection; detailed: {detailed}."


@server.prompt("test_echo")
def ask_for_echo(message: str) -> str:
    """Ask for an echo."""
    return f"Echo this: {message}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
