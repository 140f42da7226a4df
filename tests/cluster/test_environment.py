"""Workers that run another copy of the library than the driver."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ray.exceptions import RuntimeEnvSetupError

from noetic_ray import ConfigError
from noetic_ray.actors.start_errors import start_failure
from tests.cluster.conftest import DRIVERS, ROOT, Running, drive

pytestmark = pytest.mark.ray

UV = """#!/bin/sh
# `uv run ... python ARGUMENTS`, in an environment of its own
while [ "$1" != python ]; do shift; done
shift
PYTHONPATH={other} exec {python} "$@"
"""
WRAPPER = """
import subprocess, sys
sys.exit(subprocess.call([{python!r}, *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def other_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another version of the library."""
    folder = tmp_path_factory.mktemp("other")
    copy = folder / "noetic_ray"
    shutil.copytree(ROOT / "noetic_ray", copy, ignore=shutil.ignore_patterns("__pycache__"))
    top = copy / "__init__.py"
    changed, count = re.subn(r'__version__ = ".*"', '__version__ = "9.9.9"', top.read_text())
    assert count == 1
    top.write_text(changed)
    return folder


def test_a_context_in_another_environment_than_the_driver_s_does_not_start(
    cluster: Running, other_copy: Path, tmp_path: Path
) -> None:
    runtime_env = json.dumps({"env_vars": {"PYTHONPATH": str(other_copy)}})
    found = drive("mismatch", runtime_env, env=cluster.env, cwd=tmp_path)
    assert found["code"] == "ENVIRONMENT_MISMATCH"
    assert "a worker at" in found["text"]
    assert "noetic-ray 9.9.9" in found["text"]
    assert found["seconds"] < 60


@pytest.mark.slow
def test_a_wrapper_that_gives_the_workers_another_environment_is_found_out(
    bare_env: dict[str, str], other_copy: Path, tmp_path: Path
) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(other=other_copy, python=sys.executable))
    uv.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    (project / "run").write_text(WRAPPER.format(python=sys.executable))
    done = subprocess.run(
        ["uv", "run", str(DRIVERS / "mismatch.py")],
        executable=sys.executable,
        cwd=project,
        env={**bare_env, "PATH": f"{uv.parent}{os.pathsep}{bare_env['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == "ENVIRONMENT_MISMATCH"
    assert "noetic-ray 9.9.9" in found["text"]
    assert "wrappers" in found["text"]


def test_a_runtime_environment_that_ray_refuses_is_named(cluster: Running, tmp_path: Path) -> None:
    runtime_env = json.dumps({"working_dir": "/no/such/folder"})
    found = drive("mismatch", runtime_env, env=cluster.env, cwd=tmp_path)
    assert found["code"] == "INVALID_PLACEMENT"
    assert "/no/such/folder is not a valid path" in found["text"]


def test_why_an_actor_did_not_start_is_read_from_what_ray_tells() -> None:
    ours = ConfigError("SOME_CODE", "it is so", "do that")
    told = Exception(f"The actor died\n  File ...\nnoetic_ray.errors.ConfigError: {ours}\n")
    assert start_failure("it", told) == ours
    missing = start_failure("it", Exception("ModuleNotFoundError: No module named 'mine'"))
    assert isinstance(missing, ConfigError)
    assert missing.code == "ENVIRONMENT_MISMATCH"
    assert "'mine'" in str(missing)
    refused = start_failure("it", RuntimeEnvSetupError("no wheel"))
    assert isinstance(refused, ConfigError)
    assert refused.code == "RUNTIME_ENV_FAILED"
    other = start_failure("it", Exception("first\nlast line"))
    assert isinstance(other, ConfigError)
    assert other.code == "ACTOR_NOT_STARTED"
    assert "last line" in str(other)
