"""Where exporters live, when they are called, and what a bad one costs."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_ray as nr
from noetic_ray.harness import exporting
from tests.support.wait import wait_until
from tests.tracing.exporters import (
    BrokenExporter,
    EnvironmentExporter,
    FileExporter,
    StuckExporter,
)
from tests.tracing.test_span_tree import leaf

MakeHarness = Callable[..., nr.Harness]
OURS = {"invoke_agent leaf", "step leaf"}


def lines(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_an_exporter_object_works_in_the_driver_and_is_flushed_at_the_end(
    make_harness: MakeHarness, tmp_path: Path
) -> None:
    path = tmp_path / "spans"
    harness = make_harness(placement="inline", exporter=FileExporter(path))
    harness.run(leaf, "x")
    assert {line[2] for line in lines(path)} == OURS
    harness.close()
    assert [line[1] for line in lines(path)] == ["export", "export", "force_flush"]
    assert {line[0] for line in lines(path)} == {str(os.getpid())}


def test_an_exporter_object_can_be_used_by_one_harness_after_the_other(
    make_harness: MakeHarness,
) -> None:
    exporter = InMemorySpanExporter()
    for _ in range(2):
        with make_harness(placement="inline", exporter=exporter) as harness:
            harness.run(leaf, "x")
    assert len(exporter.get_finished_spans()) == 4


def test_an_exporter_made_by_a_function_works_in_the_process_of_the_journal(
    make_harness: MakeHarness, tmp_path: Path, backend: str
) -> None:
    path = tmp_path / "spans"
    placement = nr.Placement(backend, max_actors=1, warm=1)
    harness = make_harness(placement=placement, exporter=partial(FileExporter, path))
    harness.run(leaf, "x")
    exported = lines(path)
    assert {line[2] for line in exported} == OURS
    assert {line[3] for line in exported} == {harness.name}
    assert (exported[0][0] == str(os.getpid())) == (backend == "inline")
    harness.close()
    assert [line[1] for line in lines(path)[2:]] == ["force_flush", "shutdown"]


def test_a_class_makes_its_exporter_with_the_environment_of_the_driver(
    make_harness: MakeHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spans"
    monkeypatch.setenv("OTEL_TEST_FILE", str(path))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-service")
    placement = nr.Placement("actor", max_actors=1, warm=1)
    make_harness(placement=placement, exporter=EnvironmentExporter).run(leaf, "x")
    assert {tuple(line[2:]) for line in lines(path)} == {(name, "my-service") for name in OURS}


@pytest.mark.skipif(
    bool(importlib.util.find_spec("opentelemetry.exporter"))
    and bool(importlib.util.find_spec("opentelemetry.exporter.otlp")),
    reason="the OTLP exporter is installed here",
)
def test_a_missing_otlp_package_is_told_when_the_harness_opens(
    make_harness: MakeHarness, backend: str
) -> None:
    harness = make_harness(placement=backend, exporter="otlp")
    with pytest.raises(nr.ConfigError) as refused:
        harness.open()
    assert refused.value.code == "MISSING_EXTRA"
    assert "pip install opentelemetry-exporter-otlp-proto-http" in str(refused.value)


@pytest.mark.parametrize(("protocol", "package"), [("", "http"), ("grpc", "grpc")])
def test_otlp_follows_the_protocol_of_the_environment(
    make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch, protocol: str, package: str
) -> None:
    exporter = InMemorySpanExporter()
    module: Any = SimpleNamespace(OTLPSpanExporter=lambda: exporter)
    name = f"opentelemetry.exporter.otlp.proto.{package}.trace_exporter"
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    make_harness(placement="inline", exporter="otlp").run(leaf, "x")
    assert {span.name for span in exporter.get_finished_spans()} == OURS


@pytest.mark.parametrize("exporter", ["jaeger", 7, object()])
def test_what_cannot_export_is_refused_when_the_harness_is_made(exporter: Any) -> None:
    with pytest.raises(nr.ConfigError) as refused:
        nr.Harness("never-opened", exporter=exporter)
    assert refused.value.code == "INVALID_EXPORTER"


def broken_factory() -> None:
    raise OSError("no route")


@pytest.mark.parametrize(
    ("factory", "code", "placement"),
    [
        (broken_factory, "EXPORTER_FAILED", "inline"),
        (broken_factory, "EXPORTER_FAILED", "actor"),
        (dict, "INVALID_EXPORTER", "inline"),
    ],
)
def test_a_factory_that_makes_no_exporter_is_told_when_the_harness_opens(
    make_harness: MakeHarness, placement: str, factory: Any, code: str
) -> None:
    with pytest.raises(nr.ConfigError) as refused:
        make_harness(placement=placement, exporter=factory).open()
    assert refused.value.code == code


@pytest.mark.parametrize("raises", [True, False])
def test_a_failing_exporter_breaks_nothing_and_is_reported_once(
    make_harness: MakeHarness, caplog: pytest.LogCaptureFixture, raises: bool
) -> None:
    exporter = BrokenExporter(raises)
    harness = make_harness(placement="inline", exporter=lambda: exporter)
    assert [harness.run(leaf, "x") for _ in range(3)] == ["x"] * 3
    assert exporter.calls >= 3
    harness.close()
    assert len([r for r in caplog.records if "spans are lost" in r.message]) == 1


@pytest.mark.parametrize("factory", [False, True])
def test_a_stuck_exporter_delays_one_result_by_a_bound_and_the_next_ones_hardly(
    make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch, factory: bool
) -> None:
    monkeypatch.setattr(exporting, "FLUSH_SECONDS", 0.5)
    exporter = StuckExporter()
    harness = make_harness(placement="inline", exporter=(lambda: exporter) if factory else exporter)
    harness.open()
    first = _seconds(lambda: harness.run(leaf, "x"))
    second = _seconds(lambda: harness.run(leaf, "x"))
    assert 0.5 <= first < 3.0
    assert second < 0.5
    exporter.free.set()
    wait_until(lambda: len(exporter.names) == 4)
    harness.run(leaf, "x")
    harness.run(leaf, "x")
    assert len(exporter.names) == 8


def test_a_stuck_exporter_does_not_keep_a_harness_open(
    make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "FLUSH_SECONDS", 0.2)
    exporter = StuckExporter()
    harness = make_harness(placement="inline", exporter=exporter)
    harness.run(leaf, "x")
    assert _seconds(harness.close) < 3.0
    exporter.free.set()


def _seconds(call: Callable[[], Any]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_spans_of_many_short_children_are_all_there_with_the_result(
    make_harness: MakeHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    exporter = InMemorySpanExporter()
    harness = make_harness(placement="inline", exporter=exporter)
    assert len(harness.map(leaf, ["x"] * 1_500)) == 1_500
    assert len(exporter.get_finished_spans()) == 2 + 2 * 1_500
    assert not caplog.records
