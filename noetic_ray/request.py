"""What a run was asked with: who, from where, in which language and format."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from noetic_ray.errors import ConfigError

__all__ = ["Accept", "ClientInfo", "Referer", "RequestInfo", "client_type"]

Accept: TypeAlias = Literal["standard", "cui-web", "cui-native", "cui-desktop"]
Referer: TypeAlias = Literal[
    "api",
    "process",
    "mcp",
    "jssdk",
    "agent",
    "agent_fork",
    "tool",
    "hook",
    "schedule",
    "script",
    "internal",
]
Values: TypeAlias = Mapping[str, Any]

_ACCEPTS = frozenset(get_args(Accept))
_REFERERS = frozenset(get_args(Referer))
_ACCEPT_ALIASES = {"openai": "standard", "cui": "cui-web"}
#: First match wins; anything with "agent" in it counts as an agent.
_CLIENT_MARKS = (
    ("agent", ("agent",)),
    ("jssdk", ("jssdk",)),
    ("android", ("android",)),
    ("ios", ("iphone", "ipad", "ipod")),
    ("windows", ("windows",)),
    ("macos", ("mac os x", "macintosh")),
    ("linux", ("linux",)),
)
#: Without the look-alikes 0 O o 1 l I i.
_CHAT_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"
_CHAT_LENGTH = 16
_ASSISTANT_MARK = "-yao_"


def client_type(user_agent: str) -> str:
    """The kind of client a User-Agent names: ``web`` when it names none of the known ones."""
    low = user_agent.lower()
    for kind, marks in _CLIENT_MARKS:
        if any(mark in low for mark in marks):
            return kind
    return "web"


def _accept(value: Any) -> Any:
    name = value.strip().lower() if isinstance(value, str) else ""
    name = _ACCEPT_ALIASES.get(name, name)
    return name if name in _ACCEPTS else "standard"


def _referer(value: Any) -> Any:
    name = value.strip().lower() if isinstance(value, str) else ""
    return name if name in _REFERERS else "api"


def _or_empty(value: Any) -> Any:
    return "" if value is None else value


def _or_empty_map(value: Any) -> Any:
    return {} if value is None else value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else _or_empty(value)


_Str = Annotated[str, BeforeValidator(_or_empty)]
_Lower = Annotated[str, BeforeValidator(_lower)]
_Map = Annotated[dict[str, Any], BeforeValidator(_or_empty_map)]


class ClientInfo(BaseModel):
    """The program that asked. ``type`` follows from the user agent unless it is given."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    type: _Str = ""
    user_agent: _Str = ""
    ip: _Str = ""

    @model_validator(mode="before")
    @classmethod
    def _derive_type(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("type"):
            return given
        agent = given.get("user_agent")
        return {**given, "type": client_type(agent if isinstance(agent, str) else "")}


def _client(value: Any) -> Any:
    return {} if value is None else value


class RequestInfo(BaseModel):
    """``ctx.request``: a snapshot that does not change under whoever holds it.

    ``search`` and ``args`` are None when nobody set them, ``metadata`` and ``authorized`` are
    always maps. ``accept`` understands ``openai`` (standard) and ``cui`` (cui-web); what it does
    not know is ``standard``, an unknown ``referer`` is ``api``. ``locale`` and ``theme`` are lower
    case. Other fields given are kept.
    """

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    chat_id: _Str = ""
    assistant_id: _Str = ""
    connector: _Str = ""
    search: bool | str | None = None
    locale: _Lower = ""
    theme: _Lower = ""
    accept: Annotated[Accept, BeforeValidator(_accept)] = "standard"
    route: _Str = ""
    referer: Annotated[Referer, BeforeValidator(_referer)] = "api"
    retry: bool = False
    retry_times: Annotated[int, Field(ge=0)] = 0
    client: Annotated[ClientInfo, BeforeValidator(_client)] = Field(default_factory=ClientInfo)
    args: list[Any] | None = None
    metadata: _Map = Field(default_factory=dict)
    authorized: _Map = Field(default_factory=dict)

    @classmethod
    def of(cls, given: RequestInfo | Values | None) -> RequestInfo:
        """What a ``request=`` argument means. Raises ConfigError ``INVALID_REQUEST``."""
        if isinstance(given, RequestInfo):
            return given
        return _checked(cls, {} if given is None else given)

    def changed(self, **fields: Any) -> RequestInfo:
        """A copy with some fields replaced.

        None and empty text replace nothing, ``metadata`` is merged key by key with the new one
        winning. Raises ConfigError ``INVALID_REQUEST`` for a wrong type.
        """
        new = {name: value for name, value in fields.items() if value is not None and value != ""}
        if isinstance(new.get("metadata"), Mapping):
            new["metadata"] = {**self.metadata, **new["metadata"]}
        return _checked(type(self), {**dict(self), **new})

    @classmethod
    def from_http(
        cls,
        headers: Values | Sequence[tuple[str, str]],
        query: Values | None = None,
        body: Values | str | bytes | None = None,
        *,
        assistant_id: str = "",
        ip: str = "",
        authorized: Values | None = None,
    ) -> RequestInfo:
        """Read the fields from an HTTP request; a query beats a header, a header the body.

        Names are those of the fields in the query, ``X-Yao-<Name>`` in the headers, and
        ``metadata`` in the body. ``assistant_id`` is the one in the path, ``ip`` the address the
        server resolved (else forwarding headers are believed), ``authorized`` what it
        authenticated; the latter is never read from the request. A request without a chat id gets
        a fresh one. Nothing malformed raises: it counts as absent.
        """
        source = _Http(headers, query, body)
        agent = source.header("user-agent")
        return cls.of(
            {
                "chat_id": source.first("chat_id", "x-yao-chat") or _new_chat_id(),
                "assistant_id": assistant_id or source.assistant(),
                "connector": source.first("connector", "x-yao-connector"),
                "search": source.search(),
                "locale": source.locale(),
                "theme": source.first("theme", "x-yao-theme"),
                "accept": source.first("accept", "x-yao-accept"),
                "route": source.query("route")
                or source.header("x-yao-route")
                or _text(source.body.get("route")),
                "referer": source.first("referer", "x-yao-referer"),
                "client": {"user_agent": agent, "ip": ip or source.ip()},
                "metadata": source.metadata,
                "authorized": dict(authorized or {}),
            }
        )


def _checked(cls: type[RequestInfo], given: Any) -> RequestInfo:
    try:
        return cls.model_validate(given)
    except ValidationError as wrong:
        errors = wrong.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in errors[:3])
        raise ConfigError(
            "INVALID_REQUEST",
            f"The request does not have the right shape: {said}.",
            "Give a RequestInfo or a dict with its fields.",
        ) from None


def _new_chat_id() -> str:
    return "".join(secrets.choice(_CHAT_ALPHABET) for _ in range(_CHAT_LENGTH))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = value[0] if value else ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value.strip() if isinstance(value, str) else ""


def _mapping(read: Callable[[], Any]) -> dict[str, Any] | None:
    try:
        found = read()
    except (ValueError, TypeError, RecursionError):
        return None
    return dict(found) if isinstance(found, Mapping) else None


def _unpack(encoded: str) -> Any:
    padded = encoded + "=" * (-len(encoded) % 4)
    return json.loads(base64.b64decode(padded, altchars=b"-_" if set("-_") & set(padded) else None))


class _Http:
    """The three places a field can come from."""

    def __init__(
        self,
        headers: Values | Sequence[tuple[str, str]],
        query: Values | None,
        body: Values | str | bytes | None,
    ) -> None:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self._headers = {_text(name).lower(): _text(value) for name, value in pairs}
        self._query = query or {}
        raw = body
        self.body = _mapping(lambda: json.loads(raw) if isinstance(raw, str | bytes) else raw) or {}
        own = self.body.get("metadata")
        self._body_metadata: Values = own if isinstance(own, Mapping) else {}
        self.metadata = self._metadata()

    def query(self, name: str) -> str:
        return _text(self._query.get(name))

    def header(self, name: str) -> str:
        return self._headers.get(name, "")

    def first(self, name: str, header: str) -> str:
        return (
            self.query(name)
            or self.header(header)
            or _text(self.metadata.get(name))
            or _text(self._body_metadata.get(name))
        )

    def _metadata(self) -> dict[str, Any]:
        in_query, in_header = self.query("metadata"), self.header("x-yao-metadata")
        found = _mapping(lambda: json.loads(in_query)) if in_query else None
        if found is None and in_header:
            found = _mapping(lambda: _unpack(in_header))
        return dict(self._body_metadata) if found is None else found

    def assistant(self) -> str:
        named = self.query("assistant_id") or self.header("x-yao-assistant")
        _, mark, behind = _text(self.body.get("model")).rpartition(_ASSISTANT_MARK)
        return named or (behind if mark else "")

    def locale(self) -> str:
        asked = self.header("accept-language").split(",")[0].split(";")[0].strip()
        return (
            self.query("locale")
            or ("" if asked == "*" else asked)
            or _text(self.metadata.get("locale"))
            or _text(self._body_metadata.get("locale"))
        )

    def search(self) -> bool | str | None:
        given = self.query("search") or self.body.get("search")
        if isinstance(given, bool):
            return given
        word = _text(given)
        return {"true": True, "1": True, "false": False, "0": False}.get(word.lower(), word or None)

    def ip(self) -> str:
        forwarded = self.header("x-forwarded-for").split(",")[0].strip()
        return forwarded or self.header("x-real-ip")
