"""The backend around its models: import, loading, threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from backends.tensor_models import graphs
from harness.outcomes import raises_nothing
from penstock.core.backend import find_backend
from penstock.core.config import Operations, TransactionPolicy
from penstock.core.errors import BackendNotInstalledError, ConfigError, ModelLoadError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend, session
from penstock_backends.onnxruntime.graph import OnnxGraph

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
REQUEST = InferenceRequest("m", inputs={"x": Tensor.from_numpy(np.ones((1, 2), np.float32))})


def test_is_found_by_its_name() -> None:
    assert find_backend("onnxruntime") is OnnxRuntimeBackend


def test_importing_it_imports_no_engine() -> None:
    code = (
        "import sys, penstock_backends.onnxruntime; "
        "print({'onnxruntime', 'tokenizers'} & sys.modules.keys() or '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.contract("R-13")
async def test_a_model_may_be_a_directory(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx" / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    assert isinstance((await backend.execute([REQUEST]))[0], InferenceResponse)


@pytest.mark.contract("B-06", "R-13")
async def test_data_may_lie_beside_the_file_of_a_directory(
    open_backend: Open, version: Path
) -> None:
    graphs.save_external(version / "model.onnx" / "model.onnx", "weights.bin")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    (outcome,) = await backend.execute([REQUEST])
    expected = REQUEST.inputs["x"].numpy() + np.array([1, 2], np.float32)
    assert np.array_equal(graphs.tensor(outcome, "y").numpy(), expected)


@pytest.mark.contract("R-26")
async def test_the_configuration_may_name_the_file(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "mine.onnx")
    config = graphs.identity_config(DataType.FP32, 2, default_model_filename="mine.onnx")
    backend = await open_backend(config)
    assert isinstance((await backend.execute([REQUEST]))[0], InferenceResponse)


async def test_a_missing_file_is_named(open_backend: Open, version: Path) -> None:
    with pytest.raises(
        ModelLoadError, match=f"model 'same': file {version}/model.onnx does not exist"
    ):
        await open_backend(graphs.identity_config(DataType.FP32, 2))


async def test_a_broken_file_fails_with_the_reason_of_onnx_runtime(
    open_backend: Open, version: Path
) -> None:
    (version / "model.onnx").write_bytes(b"this is no model")
    with pytest.raises(
        ModelLoadError, match=r"failed to load model 'same'.*Protobuf parsing failed"
    ):
        await open_backend(graphs.identity_config(DataType.FP32, 2))


async def test_a_missing_package_is_named_with_the_line_that_installs_it(
    open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs.save_identity(version / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendNotInstalledError, match=r"pip install 'penstock\[onnx\]'"):
        await open_backend(graphs.identity_config(DataType.FP32, 2))


async def test_a_type_that_is_not_a_tensor_is_refused(open_backend: Open, version: Path) -> None:
    graphs.save(
        version / "model.onnx",
        [graphs.node("SequenceConstruct", "xx", "y")],
        [graphs.value("x", TensorProto.FLOAT, ("n", 2))],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
    )
    with pytest.raises(ModelLoadError, match=r"'y' is a seq\(tensor\(float\)\), which cannot be"):
        await open_backend(graphs.identity_config(DataType.FP32, 2))


@pytest.mark.contract("B-06", "C-34")
async def test_an_operator_library_that_is_missing_is_refused(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    operations = Operations(("/none/libops.so",))
    with pytest.raises(ModelLoadError, match=r"operator library /none/libops\.so"):
        await open_backend(graphs.identity_config(DataType.FP32, 2, model_operations=operations))


async def test_models_run_on_the_thread_of_their_instance(
    open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    threads: list[str] = []
    run = OnnxGraph.run

    def spy(graph: OnnxGraph, *given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return run(graph, *given)

    monkeypatch.setattr(OnnxGraph, "run", spy)
    await backend.execute([REQUEST])
    assert threads == ["instance_0"]


async def test_a_cancelled_batch_leaves_the_next_one_answered(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    left = asyncio.ensure_future(backend.execute([REQUEST]))
    await asyncio.sleep(0)
    left.cancel()
    assert isinstance((await backend.execute([REQUEST]))[0], InferenceResponse)
    assert left.cancelled()


async def test_a_session_is_released_at_the_end(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    await backend.finalize()
    assert backend._answer is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"parameters": graphs.parameters(execution_mode="2")},
            "Expected values for  execution_mode are 0 or 1 but got 2 .",
        ),
        (
            {"parameters": graphs.parameters(penstock__profile="profiles")},
            "'penstock.profile' must be the absolute path of a folder, not 'profiles'",
        ),
        ({"parameters": graphs.parameters(intra_op_thread_count="many")}, "intra_op_thread_count"),
        ({"parameters": graphs.parameters(enable_mem_arena="maybe")}, "enable_mem_arena"),
    ],
)
def test_unsupported_fields_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        OnnxRuntimeBackend.check_config(graphs.sums_config(**fields))


@pytest.mark.contract("C-35")
def test_a_model_that_answers_once_may_be_decoupled() -> None:
    policy = TransactionPolicy(decoupled=True)
    with raises_nothing():
        OnnxRuntimeBackend.check_config(graphs.sums_config(model_transaction_policy=policy))


@pytest.mark.contract("B-01")
async def test_opening_a_session_with_every_parameter_works(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    given = graphs.parameters(
        intra_op_thread_count="1",
        inter_op_thread_count="1",
        execution_mode="1",
        enable_mem_arena="1",
        enable_mem_pattern="0",
        memory__enable_memory_arena_shrinkage="cpu:0",
        session__use_device_allocator_for_initializers="1",
    )
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2, parameters=given))
    assert isinstance((await backend.execute([REQUEST]))[0], InferenceResponse)


@pytest.mark.contract("B-05")
def test_threads_may_be_shared_by_all_models(version: Path) -> None:
    """In a process of its own, since ONNX Runtime makes the shared pool once and for all."""
    graphs.save_identity(version / "model.onnx")
    code = (
        "import sys, numpy; from pathlib import Path; "
        "from penstock.core.config import ModelConfig; "
        "from penstock_backends.onnxruntime.session import open_graph, read_graph; "
        "from penstock_backends.onnxruntime.settings import SessionSettings; "
        "from penstock_backends.onnxruntime.providers import Device; "
        "given = {'enable-global-threadpool': '1', 'intra_op_thread_count': '1'}; "
        "path, config = Path(sys.argv[1]) / 'model.onnx', ModelConfig(name='m'); "
        "read_graph(config, path, given); "
        "settings = SessionSettings.from_config(config, given); "
        "graphs = [open_graph(path, config, settings, Device()) for _ in range(2)]; "
        "print([g.run({'x': numpy.ones((1, 2), 'f')}, ['y'])[0].sum().item() for g in graphs])"
    )
    command = [sys.executable, "-c", code, str(version)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2.0, 2.0]"


@pytest.mark.contract("C-21")
def test_levels_of_optimisation() -> None:
    import onnxruntime as ort

    names = [session._level(ort, level).name for level in (0, -1, 1, 2, 3)]
    assert names == [
        "ORT_ENABLE_ALL",
        "ORT_ENABLE_BASIC",
        "ORT_ENABLE_EXTENDED",
        "ORT_DISABLE_ALL",
        "ORT_ENABLE_ALL",
    ]
