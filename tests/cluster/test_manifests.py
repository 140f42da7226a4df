"""The cluster descriptions that are shipped: their shape, and that they agree with each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.cluster.conftest import ROOT

CLUSTER = ROOT / "cluster"
CLUSTER_FIELDS = {
    "authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions",
    "headGroupSpec", "headServiceAnnotations", "managedBy", "rayVersion", "suspend",
    "upgradeStrategy", "workerGroupSpecs",
}  # fmt: skip
HEAD_FIELDS = {
    "enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType",
    "template",
}  # fmt: skip
WORKER_FIELDS = {
    "groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts",
    "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend", "template",
}  # fmt: skip
JOB_FIELDS = {
    "activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy", "entrypoint",
    "entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId", "managedBy",
    "metadata", "rayClusterSpec", "runtimeEnvYAML", "shutdownAfterJobFinishes", "submissionMode",
    "submitterConfig", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished",
}  # fmt: skip


def load(name: str) -> Any:
    """The only document of a file."""
    return yaml.safe_load((CLUSTER / name).read_text())


def check_pod(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod template with one container that has what KubeRay needs; the container."""
    assert set(template) <= {"metadata", "spec"}
    (container,) = template["spec"]["containers"]
    assert {"name", "image", "resources"} <= set(container)
    for kind in ("requests", "limits"):
        assert set(container["resources"][kind]) == {"cpu", "memory"}
        assert all(isinstance(each, str) for each in container["resources"][kind].values())
    return container


def check_cluster(spec: Mapping[str, Any]) -> None:
    """The shape of a RayClusterSpec, as KubeRay's ray.io/v1 API has it."""
    assert set(spec) <= CLUSTER_FIELDS
    assert spec["authOptions"] == {"mode": "token"}
    head = spec["headGroupSpec"]
    assert set(head) <= HEAD_FIELDS
    assert all(isinstance(each, str) for each in head["rayStartParams"].values())
    ports = {port["name"]: port["containerPort"] for port in check_pod(head["template"])["ports"]}
    assert ports == {"gcs": 6379, "dashboard": 8265}
    assert spec["workerGroupSpecs"]
    for group in spec["workerGroupSpecs"]:
        assert set(group) <= WORKER_FIELDS
        assert group["groupName"]
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert group["rayStartParams"] == {}
        check_pod(group["template"])


def test_the_raycluster_has_the_shape_of_kuberays_api() -> None:
    document = load("raycluster.yaml")
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    assert (document["apiVersion"], document["kind"]) == ("ray.io/v1", "RayCluster")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
    check_cluster(document["spec"])


def test_the_rayjob_has_the_shape_of_kuberays_api() -> None:
    document = load("rayjob.yaml")
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    assert (document["apiVersion"], document["kind"]) == ("ray.io/v1", "RayJob")
    assert len(document["metadata"]["name"]) <= 47
    spec = document["spec"]
    assert set(spec) <= JOB_FIELDS
    assert spec["submissionMode"] in {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"}
    check_cluster(spec["rayClusterSpec"])


def test_a_failed_job_is_not_started_again_by_itself() -> None:
    spec = load("rayjob.yaml")["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["submitterConfig"] == {"backoffLimit": 0}


def test_the_job_s_cluster_is_that_of_the_standing_one() -> None:
    assert load("rayjob.yaml")["spec"]["rayClusterSpec"] == load("raycluster.yaml")["spec"]


def test_the_launcher_s_description_is_valid_for_the_installed_ray() -> None:
    config = load("ray-up.yaml")
    assert config["provider"]["type"] == "aws"
    validate_config(prepare_config(dict(config)))
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        start = [line for line in config[commands] if "ray start" in line]
        assert all(line.startswith("RAY_AUTH_MODE=token ") for line in start)


def test_every_description_names_the_ray_that_is_tested() -> None:
    dockerfile = (CLUSTER / "Dockerfile").read_text()
    assert f"FROM rayproject/ray:{ray.__version__}-py311\n" in dockerfile
    assert load("raycluster.yaml")["spec"]["rayVersion"] == ray.__version__


def test_the_image_gets_all_that_the_package_is_built_from() -> None:
    copied = " ".join(
        line for line in (CLUSTER / "Dockerfile").read_text().splitlines() if "COPY" in line
    ).split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [project["project"]["readme"], *project["project"]["license-files"], "noetic_ray"]
    for name in ("pyproject.toml", *needed):
        assert name in copied
        assert (ROOT / Path(name)).exists()
