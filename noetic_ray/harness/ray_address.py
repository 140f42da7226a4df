"""Whether a Ray cluster answers at an address, found out before `ray.init` tries for minutes.

Joining without the right token, Ray logs a warning a second for 20 s and then says "failed to
connect"; joining nothing at all takes it over two minutes. One small call to the cluster's GCS
server tells both within milliseconds.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from noetic_ray.errors import ConfigError

PROBE_SECONDS = 5.0
_PROBE = "/ray.rpc.NodeInfoGcsService/GetClusterId"
_FIND = "an address is HOST:PORT of the head node (6379 unless it was started with another --port)"
_JOBS = (
    "submit the driver as a job instead: noetic-ray submit --address http://HEAD:8265 "
    "module:agent; or start it on a node of the cluster with address='auto'"
)


def resolve(address: str | None) -> str | None:
    """The address for `ray.init`, checked; None when Ray shall look for a cluster itself.

    Raises ConfigError: RAY_CLIENT_REFUSED for `ray://`, INVALID_ADDRESS for another URL,
    RAY_UNREACHABLE, RAY_AUTHENTICATION when the cluster wants a token and did not get the right
    one.
    """
    refresh_authentication()
    given = address if address not in (None, "", "auto") else os.environ.get("RAY_ADDRESS")
    if given and given not in ("auto", "local"):
        refuse_url(given)
        _probe(given, _token(explicit=True))
        return given
    if address == "local" or given == "local":
        return "local"
    return _what_is_here(must_exist="auto" in (address, given))


def _what_is_here(must_exist: bool) -> str | None:
    """The cluster last started on this machine, if it still answers."""
    recorded = _recorded_address()
    if recorded is None:
        return "auto" if must_exist else None
    try:
        _probe(recorded, _token(explicit=False))
    except ConfigError as error:
        if must_exist or error.code != "RAY_UNREACHABLE":
            raise
        return "local"
    return "auto" if must_exist else None


def refuse_url(address: str) -> None:
    """Raise ConfigError for `ray://`, and for every other URL."""
    scheme, found, _ = address.partition("://")
    if not found:
        return
    if scheme == "ray":
        raise ConfigError(
            "RAY_CLIENT_REFUSED",
            f"{address} is a Ray Client address: its driver would be a proxy process that loses "
            "running contexts when the connection drops",
            _JOBS,
        )
    raise ConfigError(
        "INVALID_ADDRESS",
        f"{address} is not the address of a Ray cluster",
        f"{_FIND}; the URL of the job server belongs to noetic-ray submit",
    )


def _probe(address: str, token: dict[str, str]) -> None:
    """Raise ConfigError unless the cluster answers and wants what Ray is going to send."""
    _ask(address, token)
    if not token:
        return
    try:
        _ask(address, {})
    except ConfigError as error:
        if error.code == "RAY_AUTHENTICATION":
            return
        raise
    raise ConfigError(
        "RAY_AUTHENTICATION",
        f"the Ray cluster at {address} has no token authentication, but this process has: its "
        "workers could not answer",
        "set RAY_AUTH_MODE=disabled to join it",
    )


def _ask(address: str, token: dict[str, str]) -> None:
    import grpc  # type: ignore[import-untyped]

    channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
    try:
        ask = channel.unary_unary(_PROBE)
        ask(b"", timeout=PROBE_SECONDS, metadata=tuple(token.items()))
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
    else:
        return
    finally:
        channel.close()
    if code is grpc.StatusCode.UNAUTHENTICATED:
        raise unauthenticated(address, bool(token))
    # A Ray that does not know this call answers so, without details: ray.init will find out.
    if code is not grpc.StatusCode.UNIMPLEMENTED or details:
        raise unreachable(address, details.splitlines()[0] if details else code.name)


def unreachable(address: str | None, why: str) -> ConfigError:
    """What to raise when no cluster answers."""
    return ConfigError(
        "RAY_UNREACHABLE",
        f"no Ray cluster answers at {address or 'this machine'}: {why[:200]}",
        f"{_FIND}; without an address a local Ray is started",
    )


def unauthenticated(address: str, sent: bool) -> ConfigError:
    """What to raise when a cluster refuses the token it was sent, or misses one."""
    if sent:
        why = "does not accept this token"
        hint = "it came from RAY_AUTH_TOKEN, from the file RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    elif os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        why = "wants a token and there is none"
        hint = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to what `ray get-auth-token` prints there"
    else:
        why = "wants a token and none was sent, because RAY_AUTH_MODE is not 'token'"
        hint = (
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH unless the token "
            "is in ~/.ray/auth_token"
        )
    return ConfigError("RAY_AUTHENTICATION", f"the Ray cluster at {address} {why}", hint)


def _token(explicit: bool) -> dict[str, str]:
    """The header Ray would send: it sends a token it was not told to only to this machine."""
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode is None and explicit:
        return {}
    if mode is not None and mode.lower() != "token":
        return {}
    loader = _raylet().AuthenticationTokenLoader.instance()
    if not loader.has_token(ignore_auth_mode=True):
        return {}
    return dict(loader.get_token_for_http_header(ignore_auth_mode=True))


def refresh_authentication() -> None:
    """Make Ray read mode and token again: a notebook may have set them after `import ray`."""
    raylet = _raylet()
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _raylet() -> Any:
    """Ray's compiled part; its stubs leave out what is used here."""
    return importlib.import_module("ray._raylet")


def _recorded_address() -> str | None:
    """Where `ray start` wrote down the cluster it had started on this machine."""
    from ray._private.utils import read_ray_address

    found = read_ray_address()
    return str(found) if found else None
