"""Sessions: shared by instances, opened from a kept model, with a profile."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from backends.tensor_models import graphs
from penstock.core.config import (
    GraphOptimization,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Optimization,
)
from penstock.core.errors import ModelLoadError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.system.cpu_share import share_of_cores, sharers
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.settings import SessionSettings

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
ONES = np.ones((1, 2), np.float32)
REQUEST = InferenceRequest("m", inputs={"x": Tensor.from_numpy(ONES)})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Any]]:
    """The files of sessions, and their options, as they are opened."""
    made: list[tuple[Path, Any]] = []
    session = ort.InferenceSession

    def spy(path: str, options: Any, **given: Any) -> Any:
        made.append((Path(path), options))
        return session(path, options, **given)

    monkeypatch.setattr(ort, "InferenceSession", spy)
    return made


async def _answer(backend: OnnxRuntimeBackend) -> list[Any]:
    (outcome,) = await backend.execute([REQUEST])
    values: list[Any] = graphs.tensor(outcome, "y").numpy().tolist()
    return values


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _config(**parameters: str) -> ModelConfig:
    return graphs.identity_config(DataType.FP32, 2, parameters=graphs.parameters(**parameters))


# -- sharing ---------------------------------------------------------------------------------------


async def test_instances_on_a_cpu_share_a_session(
    open_backend: Open, version: Path, opened: list[Any]
) -> None:
    graphs.save_identity(version / "model.onnx")
    config = _config()
    instances = [await open_backend(config) for _ in range(3)]
    assert len(opened) == 1
    assert [await _answer(each) for each in instances] == [ONES.tolist()] * 3


async def test_instances_may_have_a_session_each(
    open_backend: Open, version: Path, opened: list[Any]
) -> None:
    graphs.save_identity(version / "model.onnx")
    config = _config(share_session_between_instances="false")
    instances = [await open_backend(config) for _ in range(2)]
    assert len(opened) == 2
    assert [await _answer(each) for each in instances] == [ONES.tolist()] * 2


async def test_a_host_policy_has_a_session_of_its_own(
    open_backend: Open, version: Path, opened: list[Any]
) -> None:
    graphs.save_identity(version / "model.onnx")
    config = _config()
    for policy in ("node0", "node1", "node0"):
        await open_backend(config, host_policy=policy)
    assert len(opened) == 2


async def test_a_session_ends_with_its_last_instance(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx")
    profiles = version.parent / "profiles"
    config = _config(penstock__profile=str(profiles))
    one, two = await open_backend(config), await open_backend(config)
    await one.finalize()
    assert await _answer(two) == ONES.tolist()
    (profile,) = _files(profiles)
    assert not profile.read_text().endswith("]\n")
    await two.finalize()
    assert profile.read_text().endswith("]\n")


def test_instances_of_gpus_share_when_asked() -> None:
    gpu = InstanceKind.KIND_GPU
    asked = _config(share_session_between_instances="1")
    found = [SessionSettings.from_config(c, {}, "gpu_0", gpu).shared for c in (_config(), asked)]
    assert found == [False, True]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_shared_session_computes_on_the_cores_of_its_instances(count: int) -> None:
    groups = (InstanceGroup(kind=InstanceKind.KIND_CPU, count=count),)
    config = ModelConfig(name="m", instance_group=groups)
    threads = SessionSettings.from_config(config, {}).intra_op_threads
    beside = threads - 1  # those that are no instance's own
    assert beside + sharers(config) == share_of_cores(config) * count
    asked = replace(config, parameters=graphs.parameters(intra_op_thread_count="4"))
    assert SessionSettings.from_config(asked, {}).intra_op_threads - 1 + count == 4 * count


# -- optimised models that are kept ----------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "models"


def _kept(cache: Path, **fields: Any) -> ModelConfig:
    given = graphs.parameters(penstock__optimized_model_cache=str(cache))
    return replace(_config(), parameters=given, **fields)


def _save_chain(path: Path) -> None:
    """y = x + 1, with a step before it that optimisation leaves out."""
    pair = ("n", 2)
    graphs.save(
        path,
        [graphs.node("Identity", "x", "m"), graphs.node("Add", "mo", "y")],
        [graphs.value("x", TensorProto.FLOAT, pair)],
        [graphs.value("y", TensorProto.FLOAT, pair)],
        {"o": np.ones(2, np.float32)},
    )


@pytest.mark.contract("W-11")
async def test_the_next_start_reads_what_was_optimised(
    open_backend: Open, version: Path, cache: Path, opened: list[tuple[Path, Any]]
) -> None:
    _save_chain(version / "model.onnx")
    first, second = [await _answer(await open_backend(_kept(cache))) for _ in range(2)]
    assert first == second == [[2.0, 2.0]]
    (kept,) = _files(cache)
    assert [path for path, _ in opened] == [version / "model.onnx", kept]
    assert opened[1][1].graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    nodes = [len(onnx.load(file).graph.node) for file in (version / "model.onnx", kept)]
    assert nodes == [2, 1]


def _truncated(data: bytes) -> bytes:
    return data[:-20]


def _emptied(data: bytes) -> bytes:
    return b""


def _overwritten(data: bytes) -> bytes:
    return b"x" * len(data)


@pytest.mark.parametrize("damage", [_truncated, _emptied, _overwritten])
async def test_a_damaged_file_is_made_anew(
    damage: Callable[[bytes], bytes],
    open_backend: Open,
    version: Path,
    cache: Path,
    opened: list[tuple[Path, Any]],
) -> None:
    _save_chain(version / "model.onnx")
    await open_backend(_kept(cache))
    (kept,) = _files(cache)
    kept.write_bytes(damage(kept.read_bytes()))
    assert await _answer(await open_backend(_kept(cache))) == [[2.0, 2.0]]
    assert opened[-1][0] == version / "model.onnx"
    assert _files(cache) == [kept]
    await open_backend(_kept(cache))
    assert opened[-1][0] == kept


@contextmanager
def _changed(what: str, version: Path) -> Iterator[dict[str, Any]]:
    """Fields of a configuration after a change of what is optimised, or how."""
    if what == "model":
        graphs.save_identity(version / "model.onnx")
    if what == "data":
        data = version / "weights.bin"
        times = data.stat()
        data.write_bytes(np.array([3, 4], np.float32).tobytes())
        os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))  # as all files of an image
    level = Optimization(graph=GraphOptimization(1))
    yield {"optimization": level} if what == "level" else {}


@pytest.mark.parametrize("what", ["model", "data", "level"])
async def test_another_model_is_not_taken_for_it(
    what: str, open_backend: Open, version: Path, cache: Path, opened: list[tuple[Path, Any]]
) -> None:
    graphs.save_external(version / "model.onnx", "weights.bin")
    await open_backend(_kept(cache))
    with _changed(what, version) as fields:
        await open_backend(_kept(cache, **fields))
    assert [path for path, _ in opened] == [version / "model.onnx"] * 2
    assert len(_files(cache)) == 2


async def test_the_same_file_elsewhere_is_the_same_model(
    open_backend: Open, version: Path, cache: Path, opened: list[tuple[Path, Any]]
) -> None:
    _save_chain(version / "model.onnx")
    await open_backend(_kept(cache))
    shutil.copy(version / "model.onnx", version / "copy.onnx")  # another time, and another place
    (version / "copy.onnx").replace(version / "model.onnx")
    await open_backend(_kept(cache))
    assert [path for path, _ in opened] == [version / "model.onnx", *_files(cache)]


@pytest.mark.contract("R-13")
async def test_external_data_become_part_of_what_is_kept(
    open_backend: Open, version: Path, cache: Path
) -> None:
    graphs.save_external(version / "model.onnx" / "model.onnx", "weights.bin")
    answers = [await _answer(await open_backend(_kept(cache))) for _ in range(2)]
    assert answers == [[[2.0, 3.0]]] * 2


async def test_a_folder_that_cannot_be_written_costs_the_time_alone(
    open_backend: Open, version: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _save_chain(version / "model.onnx")
    (tmp_path / "file").touch()
    assert await _answer(await open_backend(_kept(tmp_path / "file" / "x"))) == [[2.0, 2.0]]
    assert "model 'same': its optimised form is not kept: " in caplog.text


async def test_a_broken_model_leaves_nothing_behind(
    open_backend: Open, version: Path, cache: Path
) -> None:
    (version / "model.onnx").write_bytes(b"this is no model")
    with pytest.raises(ModelLoadError, match=r"failed to load model 'same'.*Protobuf parsing"):
        await open_backend(_kept(cache))
    assert _files(cache) == []


# -- profiles --------------------------------------------------------------------------------------


async def test_a_profile_has_the_operators_that_ran(open_backend: Open, version: Path) -> None:
    _save_chain(version / "model.onnx")
    folder = version.parent / "profiles"
    backend = await open_backend(_config(penstock__profile=str(folder)))
    await _answer(backend)
    await backend.finalize()
    (file,) = _files(folder)
    assert file.name.startswith("same-")
    events = json.loads(file.read_text())
    assert {"Add"} == {e["args"]["op_name"] for e in events if "op_name" in e.get("args", {})}


async def test_a_profile_that_cannot_be_written_is_refused(
    open_backend: Open, version: Path, tmp_path: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    (tmp_path / "file").touch()
    with pytest.raises(ModelLoadError, match="model 'same': no profile can be written: "):
        await open_backend(_config(penstock__profile=f"{tmp_path}/file/x"))
