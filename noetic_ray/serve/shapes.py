"""The bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

RUN_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"

Name: TypeAlias = Annotated[StrictStr, Field(min_length=1, max_length=500)]
Flag: TypeAlias = StrictBool | None


class _Open(BaseModel):
    """A body of OpenAI's API, which grows: what is not named here is ignored."""

    model_config = ConfigDict(extra="allow")


class _Closed(BaseModel):
    """A body of our own: other fields are an error."""

    model_config = ConfigDict(extra="forbid")


# -- chat completions: asked --------------------------------------------------------------------


class TextPart(_Open):
    """A piece of text."""

    type: Literal["text"]
    text: StrictStr


class RefusalPart(_Open):
    """A model's words for not answering, in an assistant's message."""

    type: Literal["refusal"]
    refusal: StrictStr


class ImageUrl(_Open):
    """An address, or a `data:` URL."""

    url: StrictStr
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(_Open):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileRef(_Open):
    """A file by its id, or its content as a `data:` URL."""

    file_id: StrictStr | None = None
    file_data: StrictStr | None = None
    filename: StrictStr | None = None


class FilePart(_Open):
    """A file."""

    type: Literal["file"]
    file: FileRef


Part: TypeAlias = Annotated[
    TextPart | RefusalPart | ImagePart | FilePart, Field(discriminator="type")
]


class CalledFunction(_Open):
    """`arguments` is JSON text."""

    name: StrictStr
    arguments: StrictStr


class ToolCall(_Open):
    """A call an assistant made."""

    id: Annotated[StrictStr, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: CalledFunction


class _Message(_Open):
    content: StrictStr | list[Part]


class SystemMessage(_Message):
    """Instructions."""

    role: Literal["system", "developer"]


class UserMessage(_Message):
    """What the user said."""

    role: Literal["user"]


class AssistantMessage(_Open):
    """What an assistant said, and the tools it called."""

    role: Literal["assistant"]
    content: StrictStr | list[Part] | None = None
    refusal: StrictStr | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(_Message):
    """What a tool gave."""

    role: Literal["tool"]
    tool_call_id: Annotated[StrictStr, Field(min_length=1)]


ChatMessage: TypeAlias = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class StreamOptions(_Open):
    """`include_usage` asks for a last chunk with the tokens of the whole swarm."""

    include_usage: Flag = None


class ChatRequest(_Open):
    """A conversation for an agent to go on with.

    The last message is the agent's input when it is a user's text; those before it are in its log.
    How to answer is the agent's affair: temperature, top_p, max_tokens, max_completion_tokens,
    seed, penalties, user and the like are ignored. What would change the form of the answer is
    refused: n over 1, tools, functions, stop, logprobs, a response_format other than text,
    modalities other than text.
    """

    model: StrictStr | None = Field(
        default=None, description="An agent's name; a lone agent answers to noetic-ray, too."
    )
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: Flag = None
    stream_options: StreamOptions | None = None
    n: Annotated[StrictInt, Field(ge=1)] | None = None
    detached: Flag = Field(default=None, description="Let the run go on when the client has gone.")
    metadata: dict[str, Any] | None = None


# -- chat completions: answered -----------------------------------------------------------------


class Usage(_Open):
    """Tokens of the whole swarm."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AnswerMessage(_Open):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None


class Choice(_Open):
    """There is one."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop", "length"]


class ChatCompletion(_Open):
    """`id` is the run's."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class Model(_Open):
    """An agent."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(_Open):
    """The agents."""

    object: Literal["list"]
    data: list[Model]


# -- runs ---------------------------------------------------------------------------------------


class RunRequest(_Closed):
    """What to run, and with what."""

    agent: Name | None = Field(default=None, description="May be left out when there is one.")
    input: Any = None
    items: list[dict[str, Any]] = Field(
        default_factory=list, description="What the root's log begins with."
    )
    state: Any = None
    thread_id: Name | None = None
    metadata: dict[str, Any] | None = None
    timeout: Annotated[float, Field(gt=0, le=31_536_000, strict=True)] | None = Field(
        default=None, description="Seconds after which the run is aborted."
    )
    run_id: Annotated[StrictStr, Field(pattern=RUN_ID_PATTERN)] | None = None


class ErrorBody(_Open):
    """`kind` is stable, `type` is in the words of OpenAI's API."""

    kind: str
    message: str
    type: str
    code: str | None
    param: str | None


class ErrorAnswer(_Open):
    """The body of every status from 400 on."""

    error: ErrorBody


class TokenFigures(_Open):
    """Tokens of the whole tree; `cached` is null where no provider told."""

    input: int
    output: int
    total: int
    cached: int | None


Status: TypeAlias = Literal["pending", "running", "completed", "failed", "cancelled"]


class RunLine(_Open):
    """One line about a run; `created_at` is in seconds since the epoch."""

    id: str
    agent: str
    status: Status
    created_at: float


class RunAnswer(RunLine):
    """A run now. `output` is there once it is completed, `cost` is in US dollars."""

    output: Any
    error: ErrorBody | None
    usage: TokenFigures
    cost: float


class RunList(_Open):
    """The runs of this server that are still known, oldest first."""

    object: Literal["list"]
    data: list[RunLine]


class AbortRequest(_Closed):
    """Why."""

    reason: Annotated[StrictStr, Field(max_length=2_000)] | None = None


class AbortAnswer(_Open):
    """Counts of contexts, and seconds; all zero when the run had ended."""

    reached: int
    settled: int
    killed: int
    abandoned: int
    elapsed: float


class ValueRequest(_Closed):
    """A value that fits the channel's schema."""

    value: Any


class Accepted(_Open):
    """The value is on its way."""

    channel: str
    accepted: Literal[True]


class MessageAnswer(_Open):
    """A message as a client shows it now."""

    type: str
    props: dict[str, Any]
    message_id: str
    context_id: str


class FrameList(_Open):
    """The messages so far, as the frames a client got."""

    object: Literal["list"]
    data: list[dict[str, Any]]


class TraceAnswer(_Open):
    """`root` is the id of the first node, null when there is none."""

    root: str | None
    nodes: list[dict[str, Any]]
    spaces: list[dict[str, Any]]


class Health(_Open):
    """The server answers."""

    status: Literal["ok"]
