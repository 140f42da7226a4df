"""Connections: how bytes arrive, when they stop, whose loop they belong to."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, ModelFailed
from noetic_ray.models import OpenAI
from noetic_ray.models.http import _pools, aclose_clients
from tests.support import wires
from tests.support.hearing import Heard, plain, provider, request
from tests.support.model_server import Answer, ModelServer, json_answer, server_process

SOON = 5.0
HARD = "日本🧑‍🚀é a\u2028b\u2029c\u0085d"


async def soon(event: Any) -> None:
    """Wait for a thread's event; much longer than it takes."""
    assert await asyncio.to_thread(event.wait, SOON)


def stream_of(api: str, text: str) -> bytes:
    if api == "chat":
        return wires.chat_text(text)
    return wires.responses_stream([wires.message_item(text)])


# Bytes


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_one_byte_per_write_gives_the_same_text(server: ModelServer, api: str) -> None:
    heard = Heard()
    server.script(Answer(chunks=[stream_of(api, HARD)], per_byte=True))
    reply = await provider(server.url, api, attempts=1).generate(request(), heard)
    assert plain(reply)[0]["content"][0]["text"] == HARD
    assert heard.text() == HARD


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_the_same_stream_in_many_encodings(
    server: ModelServer, api: str, ending: bytes, mark: bytes
) -> None:
    whole = stream_of(api, HARD).replace(b"data: ", b"data:").replace(b"\n", ending)
    size = 7
    chunks = [mark, *(whole[i : i + size] for i in range(0, len(whole), size))]
    server.script(Answer(chunks=[chunk for chunk in chunks if chunk]), Answer(chunks=[whole]))
    model = provider(server.url, api, attempts=1)
    cut = await model.generate(request(), Heard())
    assert plain(cut) == plain(await model.generate(request(), Heard()))
    assert plain(cut)[0]["content"][0]["text"] == HARD


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_keepalives_and_control_lines_are_ignored(server: ModelServer, api: str) -> None:
    noise = b": ping\n\nretry: 1000\n\nid: 7\n: after id\n\nevent: x\n\ndata:\n\n"
    stream = stream_of(api, HARD).replace(b"\n\n", b"\n\n" + noise)
    server.script(Answer(chunks=[noise + stream]))
    reply = await provider(server.url, api, attempts=1).generate(request(), Heard())
    assert plain(reply)[0]["content"][0]["text"] == HARD


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_every_framing_of_the_body(server: ModelServer, framing: Any) -> None:
    server.script(Answer(chunks=[stream_of("chat", "x" * 100_000)], framing=framing))
    reply = await provider(server.url, attempts=1).generate(request(), Heard())
    assert len(plain(reply)[0]["content"][0]["text"]) == 100_000


async def test_a_compressed_stream(server: ModelServer) -> None:
    import gzip

    packed = gzip.compress(stream_of("chat", HARD))
    server.script(Answer(chunks=[packed], headers={"content-encoding": "gzip"}))
    reply = await provider(server.url, attempts=1).generate(request(), Heard())
    assert plain(reply)[0]["content"][0]["text"] == HARD


async def test_a_server_that_keeps_the_stream_open_after_the_end_does_not_hold_the_answer(
    server: ModelServer,
) -> None:
    server.script(Answer(chunks=[stream_of("chat", "x")], after="hang"))
    async with asyncio.timeout(SOON):
        assert (await provider(server.url).generate(request(), Heard())).items
    await soon(server.requests[0].gone)


async def test_connections_are_used_again(server: ModelServer) -> None:
    model = provider(server.url)
    for _ in range(5):
        await model.generate(request(), Heard())
    assert server.connections == 1


async def test_many_requests_at_once(server: ModelServer) -> None:
    model = provider(server.url, attempts=1)
    replies = await asyncio.gather(*(model.generate(request(), Heard()) for _ in range(300)))
    assert len(replies) == 300
    assert len(server.requests) == 300


# Silence


async def test_a_silent_server_is_given_up(server: ModelServer) -> None:
    server.script(Answer(silent=True))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url, attempts=1, idle_timeout=0.1).generate(request(), Heard())
    assert caught.value.status is None
    assert caught.value.retryable
    await soon(server.requests[0].gone)


async def test_a_stream_that_falls_silent_is_given_up(server: ModelServer) -> None:
    chunk = wires.sse([wires.chat_chunk({"content": "half"})])
    server.script(Answer(chunks=[chunk], after="hang"))
    with pytest.raises(ModelFailed) as caught:
        await provider(server.url, attempts=1, idle_timeout=0.1).generate(request(), Heard())
    assert caught.value.partial == "half"
    await soon(server.requests[0].gone)


async def test_comments_keep_a_stream_alive(server: ModelServer) -> None:
    chunks = [b": ping\n\n"] * 12 + [stream_of("chat", "at last")]
    server.script(Answer(chunks=chunks, gap=0.05))
    model = provider(server.url, attempts=1, idle_timeout=0.4)
    begun = time.monotonic()
    assert (await model.generate(request(), Heard())).items
    assert time.monotonic() - begun > 0.4


async def test_a_server_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://me:hunter2@127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ModelFailed, match="no response") as caught:
            await OpenAI(base_url=url, attempts=1).generate(request(), Heard())
    error = caught.value
    assert error.status is None
    assert error.base_url == url.replace("me:hunter2@", "***@")
    assert "Connect" in str(error)
    assert "hunter2" not in str(error)
    assert error.retryable


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "nowhere.invalid"])
async def test_who_cannot_reach_a_server_is_told_what_to_check(host: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://{host.format(port=taken.getsockname()[1])}/v1"
        with pytest.raises(ModelFailed) as caught:
            await OpenAI(base_url=url, attempts=2).generate(request(), Heard())
    said = str(caught.value)
    assert caught.value.attempts == 2
    assert all(word in said for word in (url, "base_url", "network", "proxy"))
    assert "later" not in said


async def test_a_connection_that_is_never_accepted_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noetic_ray.models.http.CONNECT_TIMEOUT", 0.2)
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = waiting.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        begun = time.monotonic()
        with pytest.raises(ModelFailed, match="onnect") as caught:
            await provider(f"http://127.0.0.1:{full.getsockname()[1]}/v1", attempts=1).generate(
                request(), Heard()
            )
    assert caught.value.status is None
    assert time.monotonic() - begun < SOON


async def test_a_host_without_an_address() -> None:
    with pytest.raises(ModelFailed) as caught:
        await OpenAI(base_url="http://nowhere.invalid/v1", attempts=1).generate(request(), Heard())
    assert caught.value.status is None
    assert "nowhere.invalid" in str(caught.value)


@pytest.mark.usefixtures("quick")
async def test_a_connection_closed_without_an_answer_is_tried_again(server: ModelServer) -> None:
    heard = Heard()
    server.script(Answer(0, framing="close", after="reset"))
    reply = await provider(server.url).generate(request(), heard)
    assert reply.items
    assert len(heard.retries) == 1


# Cancelling


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_cancelling_ends_the_stream_at_once(server: ModelServer, api: str) -> None:
    heard = Heard()
    started = asyncio.Event()
    heard.delta = lambda kind, text: started.set()  # type: ignore[method-assign]
    whole = stream_of(api, "abc")
    delta = whole.index(b'"content":"abc"' if api == "chat" else b'"delta":"abc"')
    until = whole.index(b"\n\n", delta) + 2
    server.script(Answer(chunks=[whole[:until]], after="hang"))
    task = asyncio.create_task(provider(server.url, api).generate(request(), heard))
    async with asyncio.timeout(SOON):
        await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await soon(server.requests[0].gone)


async def test_cancelling_before_the_first_byte_ends_the_request(server: ModelServer) -> None:
    server.script(Answer(silent=True))
    task = asyncio.create_task(provider(server.url).generate(request(), Heard()))
    (got,) = await asyncio.to_thread(server.wait_for, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await soon(got.gone)


async def test_cancelling_ends_a_wait_between_attempts(server: ModelServer) -> None:
    heard = Heard()
    waiting = asyncio.Event()
    heard.retried = lambda *_: waiting.set()  # type: ignore[method-assign]
    server.script(json_answer({}, 429, headers={"retry-after": "50"}))
    task = asyncio.create_task(provider(server.url).generate(request(), heard))
    async with asyncio.timeout(SOON):
        await waiting.wait()
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert time.monotonic() - begun < 1.0
    assert len(server.requests) == 1


async def test_cancelling_one_request_leaves_the_others(server: ModelServer) -> None:
    server.script(Answer(silent=True))
    model = provider(server.url)
    lost = asyncio.create_task(model.generate(request(), Heard()))
    await asyncio.to_thread(server.wait_for, 1)
    kept = asyncio.create_task(model.generate(request(), Heard()))
    lost.cancel()
    assert (await kept).items


# Loops and processes


def test_one_provider_in_one_loop_after_another(server: ModelServer) -> None:
    model = provider(server.url, attempts=1)
    for _ in range(3):
        assert asyncio.run(model.generate(request(), Heard())).items
    assert server.connections == 3
    assert not [pools for pools in _pools.values() if pools.loop.is_closed()]


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_the_end_of_a_loop_closes_its_connections(server: ModelServer) -> None:
    asyncio.run(provider(server.url).generate(request(), Heard()))
    gc.collect()  # an open connection would be reported here, as a warning that fails the test
    assert server.connections == 1


async def test_the_connections_of_a_loop_can_be_closed_and_made_again(server: ModelServer) -> None:
    model = provider(server.url)
    await model.generate(request(), Heard())
    await aclose_clients()
    await aclose_clients(asyncio.get_running_loop())
    await model.generate(request(), Heard())
    assert server.connections == 2


async def test_a_pickled_provider_holds_no_connection(server: ModelServer) -> None:
    model = provider(server.url)
    await model.generate(request(), Heard())
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert (await again.generate(request(), Heard())).items


def test_a_provider_used_before_and_after_a_fork(server: ModelServer) -> None:
    code = f"""
import asyncio, os, sys
from tests.support.hearing import Heard, provider, request
model = provider({server.url!r}, attempts=1)
asyncio.run(model.generate(request(), Heard()))
child = os.fork()
assert asyncio.run(model.generate(request(), Heard())).items
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=root)
    assert len(server.requests) == 3


def test_the_server_in_a_process_of_its_own() -> None:
    with server_process(latency=0.01, rounds=0, text="hi") as url:
        reply = asyncio.run(provider(url, attempts=1).generate(request(), Heard()))
    assert plain(reply)[0]["content"][0]["text"] == "hi"


# Proxies and certificates


async def test_a_proxy_from_the_environment(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://me:pass@127.0.0.1:{server.port}")
    model = OpenAI(base_url="http://provider.invalid/v1", attempts=1)
    assert (await model.generate(request(), Heard())).items
    (got,) = server.requests
    assert got.path == "http://provider.invalid/v1/chat/completions"
    assert got.headers["proxy-authorization"].startswith("Basic ")


async def test_hosts_that_need_no_proxy(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy.invalid:1")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert (await provider(server.url, attempts=1).generate(request(), Heard())).items


async def test_a_proxy_of_a_kind_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:hunter2@proxy:1080")
    with pytest.raises(ConfigError) as caught:
        await OpenAI(base_url="http://x/v1").generate(request(), Heard())
    assert caught.value.code == "BAD_PROXY"
    assert "hunter2" not in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography")
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls_url(certificate: Path) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ModelServer(tls=context) as server:
        yield server.url


async def test_a_certificate_nobody_vouches_for_is_refused(tls_url: str) -> None:
    with pytest.raises(ModelFailed, match="certificate") as caught:
        await provider(tls_url, attempts=1).generate(request(), Heard())
    assert caught.value.status is None


async def test_certificates_from_the_environment(
    tls_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(certificate))
    assert (await provider(tls_url, attempts=1).generate(request(), Heard())).items


async def test_certificates_given_or_not_checked(tls_url: str, certificate: Path) -> None:
    for verify in (os.fspath(certificate), False):
        model = provider(tls_url, attempts=1, verify=verify)
        assert (await model.generate(request(), Heard())).items


async def test_certificates_that_cannot_be_loaded(tls_url: str, tmp_path: Path) -> None:
    model = provider(tls_url, verify=os.fspath(tmp_path / "none.pem"))
    with pytest.raises(ConfigError) as caught:
        await model.generate(request(), Heard())
    assert caught.value.code == "BAD_CERTIFICATES"
