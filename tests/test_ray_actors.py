"""The actors on Ray, with Ray played in this process: a restart, changes, what is handed on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fakes.ray_cluster import FakeRay, FakeReplica, RayActorError
from harness.serving import wait_until
from penstock.protocol import grpc_service_pb2 as pb
from penstock.ray.changes import NotAppliedError
from penstock.ray.scaling import ScalingPolicy

_MODULES = ("penstock.ray.controller", "penstock.ray.serve_application")
_LOAD = ("load", pb.RepositoryModelLoadRequest(model_name="m").SerializeToString())


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """In place of Ray for the modules that import it, before and after which they are not known."""
    played = FakeRay()
    for name, module in played.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in _MODULES:
        sys.modules.pop(name, None)
    yield played
    for name in _MODULES:
        sys.modules.pop(name, None)


async def _controller(folder: Path, policy: ScalingPolicy | None = None) -> Any:
    """As Ray makes an actor of the class."""
    module = import_module("penstock.ray.controller")
    settings = module.FleetSettings([], str(folder), scaling=policy or ScalingPolicy())
    controller: Any = object.__new__(module.ControllerActor)
    await controller.__init__(settings)
    return controller


async def _until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, 10.0)


def _told(folder: Path) -> list[str]:
    """The replicas that a proxy is told of."""
    found = json.loads((folder / "grpc.json").read_text())["resources"][0]["endpoints"][0]
    return [each["endpoint"]["hostname"] for each in found["lb_endpoints"]]


async def test_nothing_is_written_before_the_adopted_ones_have_answered(
    ray: FakeRay, tmp_path: Path
) -> None:
    replica = ray.replicas["fleet/replica-1"] = FakeReplica(may_start=False)
    controller = await _controller(tmp_path)
    await controller.change(*_LOAD)
    assert not (tmp_path / "grpc.json").exists()
    replica.may_start.set()
    await _until((tmp_path / "grpc.json").exists)
    assert _told(tmp_path) == ["replica-1"]
    await controller.stop()


async def test_adopted_replica_that_does_not_answer_is_ended(ray: FakeRay, tmp_path: Path) -> None:
    ended = ray.replicas["fleet/replica-1"] = FakeReplica()
    ended.ended = True
    controller = await _controller(tmp_path)
    assert ended not in ray.replicas.values()
    await controller.stop()


async def test_scaling_policy_outlives_the_controller(ray: FakeRay, tmp_path: Path) -> None:
    first = await _controller(tmp_path)
    await first.scale(ScalingPolicy(least=2, most=5))
    state = (tmp_path / "fleet.json").read_text()
    await first.stop()
    (tmp_path / "fleet.json").write_text(state)
    ray.restarted = True
    second = await _controller(tmp_path)
    assert (await second.status())["wanted"] == 2
    await second.stop()


async def test_replica_that_cannot_be_created_leaves_the_others(
    ray: FakeRay, tmp_path: Path
) -> None:
    ray.failures = [RuntimeError("no such option")]
    controller = await _controller(tmp_path, ScalingPolicy(least=2, most=2))
    await _until(lambda: "fleet/replica-2" in ray.replicas)
    status = await controller.status()
    assert "replica-1" not in status["replicas"]
    assert status["last_failure"] == "replica-1: no such option"
    await controller.stop()


async def _two(ray: FakeRay, folder: Path) -> tuple[Any, list[FakeReplica]]:
    """A controller with two replicas that serve."""
    replicas = [FakeReplica(), FakeReplica()]
    ray.replicas = {f"fleet/replica-{n}": each for n, each in enumerate(replicas, 1)}
    controller = await _controller(folder, ScalingPolicy(least=2, most=2))
    await _until((folder / "http.json").exists)
    return controller, replicas


async def test_change_that_all_refuse_is_forgotten_and_has_the_code(
    ray: FakeRay, tmp_path: Path
) -> None:
    controller, replicas = await _two(ray, tmp_path)
    for replica in replicas:
        replica.refusal = NotAppliedError("no such model", "NOT_FOUND")
    with pytest.raises(NotAppliedError, match="no such model") as raised:
        await controller.change(*_LOAD)
    status = await controller.status()
    assert raised.value.code == "NOT_FOUND"
    assert [each["lacks"] for each in status["replicas"].values()] == [{}, {}]
    assert status["changes"] == []
    await controller.stop()


async def test_change_is_kept_where_one_replica_dies_in_it(ray: FakeRay, tmp_path: Path) -> None:
    controller, replicas = await _two(ray, tmp_path)
    replicas[0].refusal = RayActorError("killed")
    assert await controller.change(*_LOAD) == {"replica-1": "it did not answer: killed"}
    status = await controller.status()
    assert status["changes"] == ["load m"]
    assert [*status["replicas"]["replica-1"]["lacks"]] == ["load m"]
    await controller.stop()


async def test_fleet_that_stops_is_not_written_again(ray: FakeRay, tmp_path: Path) -> None:
    """A change is made while its replicas answer what they have in flight."""
    controller, replicas = await _two(ray, tmp_path)
    replicas[0].at_its_end = partial(controller.change, *_LOAD)
    await controller.stop()
    assert _told(tmp_path) == []


# -- behind Ray Serve ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/models/m/load",
        "/v2/repository/models/m/unload/",
        "/v2/repository/aliases/a",
        "/v2/logging",
        "/v2/logging/",
        "/v2/trace/setting",
        "/v2/models/m/trace/setting",
        "/v2/systemsharedmemory/region/r/register",
        "/v2/cudasharedmemory/unregister",
    ],
)
def test_paths_that_change_one_replica_are_refused(ray: FakeRay, path: str) -> None:
    refused = import_module("penstock.ray.serve_application").refused_path
    assert refused("POST", path).startswith(path.rstrip("/"))
    assert refused("GET", path) == ""


def test_paths_of_inference_are_handed_on(ray: FakeRay) -> None:
    refused = import_module("penstock.ray.serve_application").refused_path
    assert refused("POST", "/v2/models/m/infer") == ""


def test_settings_are_read_and_not_changed(ray: FakeRay) -> None:
    refused = import_module("penstock.ray.serve_application").refused_call
    log, trace = pb.LogSettingsRequest(), pb.TraceSettingRequest(model_name="m")
    assert (refused("LogSettings", log), refused("TraceSetting", trace)) == ("", "")
    log.settings["log_verbose_level"].uint32_param = 1
    trace.settings["trace_rate"].value.append("1")
    assert refused("LogSettings", log).startswith("LogSettings")
    assert refused("TraceSetting", trace).startswith("TraceSetting")
