"""Ray itself: joined where it runs, started where it does not, shut down only if we started it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType

import ray
from ray.exceptions import AuthenticationError

from noetic_ray.errors import ConfigError
from noetic_ray.harness import ray_address

_lock = threading.Lock()
_users = 0
_ours = False


class RaySession:
    """One harness's use of Ray in this process."""

    def __init__(self) -> None:
        self._open = True
        self._identity = _identity()

    def alive(self) -> bool:
        """Whether this is still the Ray it was opened on; never starts one."""
        if not ray.is_initialized():
            return False
        return _identity() == self._identity

    @classmethod
    def open(cls, address: str | None) -> RaySession:
        """Connect to `address`, to RAY_ADDRESS, to what is there, or start a local Ray."""
        global _users, _ours
        with _lock:
            if not ray.is_initialized():
                _ours = _in_lasting_thread(_init, address)
                _users = 0
            else:
                _refuse_client()
                _refuse_another(address)
            _users += 1
        return cls()

    def close(self) -> None:
        """The last user shuts a Ray down that we started."""
        global _users, _ours
        with _lock:
            if not self._open:
                return
            self._open = False
            if not self.alive():
                return
            _users -= 1
            if _users <= 0 and _ours and ray.is_initialized():
                _ours = False
                ray.shutdown()


def _refuse_another(address: str | None) -> None:
    """One process talks to one Ray: refuse an address that is not its."""
    port = (address or "").rpartition(":")[2]
    here = str(ray.get_runtime_context().gcs_address)
    if port.isdigit() and port != here.rpartition(":")[2]:
        raise ConfigError(
            "ADDRESS_CONFLICT",
            f"this process is connected to the Ray at {here}, not to {address}",
            "call ray.shutdown() first, or leave address= out",
        )


def _identity() -> tuple[str, str]:
    """What another Ray cannot have in common: a driver's worker id, for one, is always the same."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def _in_lasting_thread(fn: Callable[[str | None], bool], address: str | None) -> bool:
    """Call `fn` in a thread that does not end before the process.

    The processes of a local Ray are killed by the kernel when the thread that started them ends:
    a thread of an executor, for instance.
    """
    if threading.current_thread() is threading.main_thread():
        return fn(address)
    result: Future[bool] = Future()

    def stay() -> None:
        try:
            result.set_result(fn(address))
        except BaseException as error:
            result.set_exception(error)
            return
        threading.Event().wait()

    threading.Thread(target=stay, name="noetic-ray-init", daemon=True).start()
    return result.result()


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Hold Ctrl-C back while a local Ray starts, then let it through and take Ray down.

    An interrupted `ray.init` leaves agents behind that outlive this process by half a minute. A
    second Ctrl-C goes through at once.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        if len(came) > 1:
            before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        try:
            before(signal.SIGINT, None)
        except BaseException:
            ray.shutdown()
            raise


def _init(address: str | None) -> bool:
    """Initialise Ray in this process; whether it is ours to shut down."""
    options: dict[str, object] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": True,
        "namespace": "noetic-ray",
    }
    where = address
    try:
        where = ray_address.resolve(address)
        if where in (None, "local"):
            options["include_dashboard"] = False
            with _interrupted_later():
                ray.init(address=where, **options)
        else:
            ray.init(address=where, **options)
    except AuthenticationError as error:
        raise ConfigError(
            "RAY_AUTHENTICATION",
            f"Ray at {where or 'this machine'}: {_first_line(error)}",
            "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, or RAY_AUTH_MODE=disabled where the "
            "cluster has no authentication",
        ) from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _not_joined(where, error) from error
    return True


def _not_joined(where: str | None, error: Exception) -> ConfigError:
    if "version mismatch" in str(error).lower():
        told = " ".join(str(error).split())
        return ConfigError(
            "ENVIRONMENT_MISMATCH",
            f"this process cannot join the Ray cluster at {where}: {told[:500]}",
            "use the same Python and the same Ray on every node and in the driver",
        )
    return ray_address.unreachable(where, _first_line(error))


def _refuse_client() -> None:
    """Somebody called `ray.init("ray://...")` before us."""
    from ray.util.client import ray as client

    if client.is_connected():
        ray_address.refuse_url("ray://")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
