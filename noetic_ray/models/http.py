"""HTTP to providers: one connection pool per process, event loop and route.

The pool is aiohttp's behind httpx's transport interface, which costs a fraction of httpx's own
pool when a thousand requests are under way. Everything environment variables say about proxies
(`HTTPS_PROXY`, `NO_PROXY`, ...) and certificates (`SSL_CERT_FILE`, `SSL_CERT_DIR`) holds.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from noetic_ray.errors import ConfigError

CONNECT_TIMEOUT = 10.0

#: Below the 5 s after which common servers close an idle connection, so that theirs is not reused.
_KEEPALIVE = 4.0
#: Slowest upload taken for alive, bytes per second.
_SLOW_UPLOAD = 16_384

ConnectionFailed = (httpx.RequestError, aiohttp.ClientError, TimeoutError, OSError)
"""What opening or reading a response raises when the network or the peer fails."""


class _Route(NamedTuple):
    secure: bool
    proxy: str | None
    verify: bool | str


@dataclass(slots=True)
class _Pools:
    loop: asyncio.AbstractEventLoop
    keeper: AsyncGenerator[None, None]
    transports: dict[_Route, AiohttpTransport]


_pools: dict[tuple[int, int], _Pools] = {}


class Endpoint:
    """Where requests of one kind go: a full URL with the headers they all carry."""

    __slots__ = ("headers", "route", "url")

    def __init__(self, url: str, headers: Mapping[str, str], verify: bool | str) -> None:
        self.url = httpx.URL(url)
        self.headers = dict(headers)
        self.route = _Route(self.url.scheme == "https", _proxy_for(url), verify)
        if not self.route.secure:
            # Without a tunnel the proxy reads the request itself.
            self.headers |= _proxy_authorization(self.route.proxy)

    async def open(self, body: bytes, idle_timeout: float) -> httpx.Response:
        """POST `body` and return the response with its body still to come.

        The caller must `aclose` it. Raises one of `ConnectionFailed`.
        """
        transport = await _transport(self.route)
        patience = {"connect": CONNECT_TIMEOUT, "pool": CONNECT_TIMEOUT, "read": idle_timeout}
        request = httpx.Request(
            "POST", self.url, headers=self.headers, content=body, extensions={"timeout": patience}
        )
        limit = CONNECT_TIMEOUT + idle_timeout + len(body) / _SLOW_UPLOAD
        async with asyncio.timeout(limit):
            response: httpx.Response = await transport.handle_async_request(request)
        return response


async def aclose_clients(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Close the connections that this process holds on `loop`, by default the running one.

    Call it on that loop before it ends. `asyncio.run` needs no call: it closes them by itself.
    """
    pools = _pools.pop(_key(loop or asyncio.get_running_loop()), None)
    if pools is not None:
        await pools.keeper.aclose()


def _key(loop: asyncio.AbstractEventLoop) -> tuple[int, int]:
    return os.getpid(), id(loop)


async def _transport(route: _Route) -> AiohttpTransport:
    loop = asyncio.get_running_loop()
    pools = _pools.get(_key(loop))
    if pools is None or pools.loop is not loop:
        pools = await _new_pools(loop)
    transport = pools.transports.get(route)
    if transport is None:
        transport = pools.transports[route] = _new_transport(route)
    return transport


async def _new_pools(loop: asyncio.AbstractEventLoop) -> _Pools:
    for key, old in list(_pools.items()):
        if old.loop.is_closed():
            del _pools[key]
    transports: dict[_Route, AiohttpTransport] = {}
    pools = _Pools(loop, _close_at_end(_key(loop), transports), transports)
    _pools[_key(loop)] = pools
    await anext(pools.keeper)
    return pools


async def _close_at_end(
    key: tuple[int, int], transports: dict[_Route, AiohttpTransport]
) -> AsyncGenerator[None, None]:
    """A generator the loop knows of: `shutdown_asyncgens` ends it, and it ends the connections."""
    try:
        yield
    finally:
        _pools.pop(key, None)
        for transport in transports.values():
            await transport.aclose()
        transports.clear()


def _new_transport(route: _Route) -> AiohttpTransport:
    encrypted = route.secure or (route.proxy or "").startswith("https:")
    context = _ssl_context(route.verify) if encrypted else _no_certificates()

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=context, keepalive_timeout=_KEEPALIVE, ttl_dns_cache=60
        )
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        )

    proxy = _proxy(route.proxy) if route.proxy else None
    return AiohttpTransport(verify=context, proxy=proxy, client=session)


def _proxy(url: str) -> httpx.Proxy:
    """The proxy with its credentials in a header, the form aiohttp keeps supporting."""
    return httpx.Proxy(httpx.Proxy(url).url, headers=_proxy_authorization(url))


def _proxy_authorization(url: str | None) -> dict[str, str]:
    auth = httpx.Proxy(url).auth if url else None
    if auth is None:
        return {}
    token = base64.b64encode(":".join(auth).encode()).decode()
    return {"proxy-authorization": f"Basic {token}"}


def _ssl_context(verify: bool | str) -> ssl.SSLContext:
    env = os.environ
    return _made_ssl_context(verify, env.get("SSL_CERT_FILE"), env.get("SSL_CERT_DIR"))


@lru_cache(maxsize=16)
def _made_ssl_context(verify: bool | str, file: str | None, folder: str | None) -> ssl.SSLContext:
    """Loading the certificates takes about 20 ms, so contexts are shared."""
    try:
        if isinstance(verify, str):
            is_folder = os.path.isdir(verify)
            return ssl.create_default_context(
                cafile=None if is_folder else verify, capath=verify if is_folder else None
            )
        return httpx.create_ssl_context(verify=verify)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(
            "BAD_CERTIFICATES",
            f"the certificates in {verify if isinstance(verify, str) else file or folder!r} "
            f"cannot be loaded: {exc}",
            "Point verify= or SSL_CERT_FILE at a readable PEM file.",
        ) from exc


@lru_cache(maxsize=1)
def _no_certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(verify=False)


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigError(
            "BAD_PROXY",
            f"the proxy set for {parts.scheme}:// is of kind {urlsplit(proxy).scheme}://",
            "Only http:// and https:// proxies are supported; unset it or name one of those.",
        )
    return proxy
