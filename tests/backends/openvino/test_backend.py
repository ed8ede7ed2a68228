"""Models of OpenVINO's format: datatypes, batches, sharing, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from backends.openvino import toys
from backends.tensor_models import graphs
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InternalError,
    ModelLoadError,
    UnavailableError,
)
from penstock.core.tensor import DataType, Tensor
from penstock_backends.openvino import OpenVinoBackend
from penstock_backends.openvino import backend as openvino_backend
from penstock_backends.openvino.settings import OpenVinoSettings

Open = Callable[..., Awaitable[OpenVinoBackend]]


def _rows(count: int, start: float = 0) -> Any:
    return np.arange(count * 2, dtype=np.float32).reshape(count, 2) + start


async def _answers(backend: OpenVinoBackend, *arrays: Any) -> list[Any]:
    outcomes = await backend.execute([graphs.request(x=array) for array in arrays])
    return [graphs.tensor(outcome, "y").numpy() for outcome in outcomes]


def test_importing_it_imports_no_engine() -> None:
    code = (
        "import sys, penstock_backends.openvino, penstock_backends.tensorflow; "
        "sys.exit('openvino' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.contract("B-14")
async def test_a_batch_is_joined_and_split_by_rows(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml")
    backend = await open_backend(toys.config())
    one, three = await _answers(backend, _rows(1), _rows(3, 10))
    assert_array_equal(one, 2 * _rows(1))
    assert_array_equal(three, 2 * _rows(3, 10))


async def test_an_answer_is_not_changed_by_the_next(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml")
    backend = await open_backend(toys.config())
    (first,) = await _answers(backend, _rows(2))
    await _answers(backend, _rows(2, 50))
    assert_array_equal(first, 2 * _rows(2))


async def test_memory_of_a_client_is_let_go_after_the_run(
    open_backend: Open, version: Path
) -> None:
    toys.save_double(version / "model.xml")
    backend = await open_backend(toys.config())
    memory = bytearray(_rows(2).tobytes())
    await backend.execute([graphs.request(x=Tensor(DataType.FP32, (2, 2), memoryview(memory)))])
    await backend.openai_app()  # the instance's thread has let go of its last call
    memory.extend(b"1")  # raises while anyone looks at it
    assert len(memory) == 17


async def test_without_batching_a_request_runs_as_it_is(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml", (3, 2))
    backend = await open_backend(toys.config(DataType.FP32, 3, 2, max_batch_size=0))
    (answer,) = await _answers(backend, _rows(3))
    assert_array_equal(answer, 2 * _rows(3))


async def test_a_scalar_is_declared_as_one_element(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml", ())
    backend = await open_backend(toys.config(DataType.FP32, 1, max_batch_size=0))
    (answer,) = await _answers(backend, np.array([4], np.float32))
    assert answer.tolist() == [8]


@pytest.mark.parametrize(
    ("kind", "datatype"),
    [
        ("u8", DataType.UINT8),
        ("i8", DataType.INT8),
        ("i16", DataType.INT16),
        ("u16", DataType.UINT16),
        ("i32", DataType.INT32),
        ("u32", DataType.UINT32),
        ("i64", DataType.INT64),
        ("u64", DataType.UINT64),
        ("f16", DataType.FP16),
        ("f32", DataType.FP32),
        ("f64", DataType.FP64),
    ],
)
async def test_each_datatype_comes_back(
    open_backend: Open, version: Path, kind: str, datatype: DataType
) -> None:
    toys.save_double(version / "model.xml", kind=kind)
    backend = await open_backend(toys.config(datatype))
    (answer,) = await _answers(backend, np.array([[1, 2]], datatype.numpy))
    assert_array_equal(answer, np.array([[2, 4]], datatype.numpy), strict=True)


async def test_bfloat16_is_passed_as_bits(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml", kind="bf16")
    backend = await open_backend(toys.config(DataType.BF16))
    one_and_two = Tensor(DataType.BF16, (1, 2), np.array([0x3F80, 0x4000], np.uint16).tobytes())
    (outcome,) = await backend.execute([graphs.request(x=one_and_two)])
    assert graphs.tensor(outcome, "y").numpy().tolist() == [[0x4000, 0x4080]]


@pytest.mark.contract("B-14")
async def test_a_declared_datatype_is_converted_to_the_models(
    open_backend: Open, version: Path
) -> None:
    toys.save_double(version / "model.xml")
    backend = await open_backend(toys.config(DataType.FP64))
    (answer,) = await _answers(backend, np.array([[1, 2]], np.float64))
    assert_array_equal(answer, np.array([[2, 4]], np.float64), strict=True)


async def test_a_fixed_first_dimension_becomes_that_of_the_batch(
    open_backend: Open, version: Path
) -> None:
    toys.save_double(version / "model.xml", (1, 2))
    backend = await open_backend(toys.config())
    (answer,) = await _answers(backend, _rows(5))
    assert_array_equal(answer, 2 * _rows(5))


@pytest.mark.contract("B-14")
async def test_batches_are_padded_where_the_configuration_says_so(
    open_backend: Open, version: Path
) -> None:
    toys.save_rows(version / "model.xml")
    given = graphs.parameters(ENABLE_BATCH_PADDING="Yes")
    backend = await open_backend(toys.config(max_batch_size=4, parameters=given))
    one, two = await _answers(backend, _rows(1), _rows(2, 7))
    assert_array_equal(one, 2 * _rows(1))
    assert_array_equal(two, 2 * _rows(2, 7))


@pytest.mark.contract("B-14")
async def test_a_model_with_a_batch_size_of_its_own_takes_no_other(
    open_backend: Open, version: Path
) -> None:
    toys.save_rows(version / "model.xml")
    given = graphs.parameters(SKIP_OV_DYNAMIC_BATCHSIZE="YES")
    backend = await open_backend(toys.config(max_batch_size=4, parameters=given))
    (answer,) = await _answers(backend, _rows(4))
    assert_array_equal(answer, 2 * _rows(4))
    (outcome,) = await backend.execute([graphs.request(x=_rows(3))])
    assert isinstance(outcome, InternalError)
    assert outcome.message == (
        "expected requests with batch size '4', got '3'... this error can be avoided by setting"
        " 'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
    )


@pytest.mark.contract("B-14")
async def test_inputs_get_the_dimensions_of_the_configuration(
    open_backend: Open, version: Path
) -> None:
    toys.save_double(version / "model.xml", (1, 2))
    given = graphs.parameters(RESHAPE_IO_LAYERS="yes")
    config = toys.config(DataType.FP32, 3, 5, max_batch_size=0, parameters=given)
    backend = await open_backend(config)
    (answer,) = await _answers(backend, np.ones((3, 5), np.float32))
    assert answer.shape == (3, 5)


async def test_a_wrong_shape_is_an_error_of_its_request(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml", (-1, 2))
    backend = await open_backend(toys.config())
    (outcome,) = await backend.execute([graphs.request(x=np.zeros((1, 3), np.float32))])
    assert isinstance(outcome, InternalError)
    assert outcome.message.startswith("openvino error in running inference: Can't set the input")
    assert "src/" not in outcome.message


# -- runs that fail --------------------------------------------------------------------------------


@pytest.fixture
def compiled_models(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is compiled from now on."""
    found: list[object] = []
    whole = openvino_backend.compile_model

    def compile_one(*args: Any) -> object:
        found.append(whole(*args))
        return found[-1]

    monkeypatch.setattr("penstock_backends.openvino.backend.compile_model", compile_one)
    return found


async def _tried(backend: OpenVinoBackend, **feeds: Any) -> Any:
    (outcome,) = await backend.execute([graphs.request(**feeds)])
    return outcome


@pytest.mark.parametrize("threads", ["1", "2"])
async def test_a_run_that_fails_is_told_and_spoils_no_other(
    open_backend: Open, version: Path, threads: str
) -> None:
    """On one thread, too, where the engine's own call that waits answers with the run before."""
    toys.save_mirrored(version / "model.xml")
    given = graphs.parameters(INFERENCE_NUM_THREADS=threads)
    config = toys.config(DataType.FP32, -1, -1, max_batch_size=0, parameters=given)
    backend = await open_backend(config)
    for number in (1, 2, 3):
        rows = np.arange(8, dtype=np.float32).reshape(2, 4) * number
        (answer,) = await _answers(backend, rows)
        assert_array_equal(answer, np.pad(2 * rows, ((0, 0), (0, 3)), "reflect"))
        failed = await _tried(backend, x=np.zeros((2, number), np.float32))
        assert "openvino error in running inference" in failed.message
        assert "REFLECT" in failed.message


async def test_shapes_that_fail_have_the_model_compiled_once(
    open_backend: Open, version: Path, compiled_models: list[object]
) -> None:
    toys.save_mirrored(version / "model.xml")
    backend = await open_backend(toys.config(DataType.FP32, -1, -1, max_batch_size=0))
    for rows in range(20):
        failed = await _tried(backend, x=np.zeros((rows, 3), np.float32))
        assert "openvino error in running inference" in failed.message
        (answer,) = await _answers(backend, np.full((2, 4), rows, np.float32))
        assert_array_equal(answer, np.full((2, 7), 2 * rows, np.float32))
    assert len(compiled_models) == 1


async def test_columns_that_the_weights_do_not_have_are_refused(
    open_backend: Open, version: Path
) -> None:
    """The engine multiplies them nevertheless, with what lies behind them in memory."""
    toys.save_product(version / "model.xml", (-1, -1))
    backend = await open_backend(toys.config(DataType.FP32, -1, -1, max_batch_size=0))
    for columns in (1, 3):
        failed = await _tried(backend, x=np.ones((1, columns), np.float32))
        assert "openvino error in running inference" in failed.message
    assert_array_equal((await _answers(backend, np.ones((1, 2), np.float32)))[0], [[2, 2]])


async def test_values_that_fail_have_the_model_compiled_now_and_then_and_refused_between(
    open_backend: Open,
    version: Path,
    compiled_models: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may compute others' requests wrong meanwhile."""
    monkeypatch.setattr("penstock_backends.openvino.model_graph.monotonic", count().__next__)
    monkeypatch.setattr("penstock_backends.openvino.model_graph.RESTS", 10)
    toys.save_shaped(version / "model.xml")
    inputs = (
        graphs.tensor_in("x", DataType.FP32, -1, 2),
        graphs.tensor_in("dims", DataType.INT64, 2),
    )
    outputs = (graphs.tensor_out("y", DataType.FP32, -1, -1),)
    config = replace(toys.config(max_batch_size=0), input=inputs, output=outputs)
    backend = await open_backend(config)
    refused = 0
    for _ in range(40):
        given = {"x": np.ones((2, 2), np.float32)}
        await _tried(backend, **given, dims=np.array([5, 5]))
        made = await _tried(backend, **given, dims=np.array([4, 1]))
        if isinstance(made, UnavailableError):
            refused += 1
        else:
            assert_array_equal(graphs.tensor(made, "y").numpy(), np.ones((4, 1), np.float32))
    assert 0 < refused < 40
    assert 2 <= len(compiled_models) <= 10


# -- sharing ---------------------------------------------------------------------------------------


def _compiled(backend: OpenVinoBackend) -> object:
    graph = backend._answer._graph  # type: ignore[union-attr]
    return graph._owner._made[1].model


async def test_instances_share_what_is_compiled(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml")
    config = toys.config()
    one, two = await open_backend(config), await open_backend(config)
    assert _compiled(one) is _compiled(two)
    assert_array_equal(*[(await _answers(b, _rows(2)))[0] for b in (one, two)])


async def test_a_changed_file_is_compiled_anew(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml")
    config = toys.config()
    one = await open_backend(config)
    toys.save_double(version / "model.xml", (-1, -1))
    os.utime(version / "model.xml", ns=(1, 1))
    assert _compiled(one) is not _compiled(await open_backend(config))


# -- parameters ------------------------------------------------------------------------------------


def _settings(**parameters: str) -> OpenVinoSettings:
    return OpenVinoSettings.from_config(toys.config(parameters=graphs.parameters(**parameters)))


@pytest.mark.contract("B-14")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1"}),
        ({"HINT_BF16": "YES"}, {"INFERENCE_PRECISION_HINT": "bf16"}),
        ({"HINT_BF16": "no"}, {"INFERENCE_PRECISION_HINT": "f32"}),
        ({"PERFORMANCE_HINT": "throughput"}, {"PERFORMANCE_HINT": "THROUGHPUT"}),
        ({"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "auto"}, {"NUM_STREAMS": "AUTO"}),
        ({"NUM_STREAMS": "2"}, {"NUM_STREAMS": "2"}),
        ({"INFERENCE_NUM_THREADS": "3"}, {"INFERENCE_NUM_THREADS": "3"}),
    ],
)
def test_parameters_become_properties(given: dict[str, str], expected: dict[str, str]) -> None:
    assert _settings(**given).properties.items() >= expected.items()


def test_instances_have_a_stream_each() -> None:
    config = toys.config(instance_group=(InstanceGroup(count=3, kind=InstanceKind.KIND_CPU),))
    assert OpenVinoSettings.from_config(config).properties["NUM_STREAMS"] == "3"


def test_a_performance_hint_chooses_the_streams() -> None:
    assert "NUM_STREAMS" not in _settings(PERFORMANCE_HINT="THROUGHPUT").properties


@pytest.mark.contract("B-14")
async def test_a_model_is_compiled_with_its_properties(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml")
    given = graphs.parameters(
        INFERENCE_NUM_THREADS="1", COMPILATION_NUM_THREADS="1", TARGET_DEVICE="cpu"
    )
    compiled: Any = _compiled(await open_backend(toys.config(parameters=given)))
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"


@pytest.mark.contract("B-14")
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("INFERENCE_NUM_THREADS", "-1", "to be a non-negative number, got -1"),
        ("COMPILATION_NUM_THREADS", "Many", "to be a non-negative number, got many"),
        ("NUM_STREAMS", "few", "to be either AUTO/NUMA/<int_value>, got few"),
        (
            "PERFORMANCE_HINT",
            "FAST",
            "to be LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got fast",
        ),
    ],
)
def test_a_parameter_without_sense_is_refused(name: str, value: str, text: str) -> None:
    config = toys.config(parameters=graphs.parameters(**{name: value}))
    with pytest.raises(ConfigError) as refused:
        OpenVinoBackend.check_config(config)
    assert refused.value.message == f"expected the parameter '{name}' {text}"


@pytest.mark.contract("B-14")
@pytest.mark.parametrize("kind", [InstanceKind.KIND_GPU, InstanceKind.KIND_MODEL])
def test_instances_are_on_cpus_only(kind: InstanceKind) -> None:
    with pytest.raises(ConfigError) as refused:
        OpenVinoBackend.check_config(toys.config(instance_group=(InstanceGroup(kind=kind),)))
    assert refused.value.message == (
        "unable to load model 'double', Triton OpenVINO backend supports only Kind CPU and AUTO"
    )


# -- completion ------------------------------------------------------------------------------------


async def _completed(config: ModelConfig, version: Path, **settings: str) -> ModelConfig:
    names = {name.replace("_", "-"): value for name, value in settings.items()}
    return await OpenVinoBackend.complete_config(config, version, names)


BARE = ModelConfig(name="bare", backend="openvino")


@pytest.mark.contract("AC-12")
async def test_a_layout_with_a_batch_dimension_makes_the_model_batch(
    open_backend: Open, version: Path
) -> None:
    toys.save_double(version / "model.xml", (1, 3, 2), layout="NCH")
    completed = await _completed(BARE, version)
    assert completed.max_batch_size == 4
    assert completed.dynamic_batching is not None
    assert completed.input == (graphs.tensor_in("x", DataType.FP32, 3, 2),)
    assert completed.output == (graphs.tensor_out("y", DataType.FP32, 3, 2),)
    (answer,) = await _answers(await open_backend(completed), np.ones((4, 3, 2), np.float32))
    assert answer.shape == (4, 3, 2)


@pytest.mark.contract("AC-12")
async def test_the_default_batch_size_is_a_setting(version: Path) -> None:
    toys.save_double(version / "model.xml", (1, 2), layout="NC")
    completed = await _completed(BARE, version, default_max_batch_size="1")
    assert (completed.max_batch_size, completed.dynamic_batching) == (1, None)


@pytest.mark.contract("AC-12")
async def test_without_layouts_nothing_is_batched_and_all_dimensions_are_told(
    version: Path,
) -> None:
    toys.save_double(version / "model.xml", (-1, 2))
    completed = await _completed(BARE, version)
    assert completed.max_batch_size == 0
    assert completed.input == (graphs.tensor_in("x", DataType.FP32, -1, 2),)


@pytest.mark.contract("AC-12")
async def test_a_batch_size_without_a_layout_is_a_warning(
    version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toys.save_double(version / "model.xml", (-1, 2))
    completed = await _completed(replace(BARE, max_batch_size=2), version)
    assert completed.input == (graphs.tensor_in("x", DataType.FP32, 2),)
    assert "no layout with a batch dimension" in caplog.text


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"input": (graphs.tensor_in("z", DataType.FP32, 2),)}, "unexpected inference input 'z'"),
        ({"output": (graphs.tensor_out("z", DataType.FP32, 2),)}, "unexpected inference output"),
        (
            {"input": (graphs.tensor_in("x", DataType.FP32, 2, 3),)},
            r"the model expects shape \[-1,2\] but the model configuration specifies shape"
            r" \[-1,2,3\]",
        ),
        (
            {"input": (graphs.tensor_in("x", DataType.FP32, 3),)},
            r"the model expects shape \[-1,2\]",
        ),
        (
            {"input": (graphs.tensor_in("x", DataType.BYTES, 2),)},
            "expects datatype TYPE_STRING for input 'x', model provides TYPE_FP32",
        ),
        (
            {"parameters": graphs.parameters(TARGET_DEVICE="abacus")},
            'on ABACUS: Device with "ABACUS" name is not registered',
        ),
        (
            {"parameters": graphs.parameters(CPU_EXTENSION_PATH="/nowhere.so")},
            "Cannot find entry point to the extension library",
        ),
        (
            {
                "input": (graphs.tensor_in("x", DataType.FP32, 2, 2, 2),),
                "parameters": graphs.parameters(RESHAPE_IO_LAYERS="YES"),
                "output": (graphs.tensor_out("y", DataType.FP32, 2),),
            },
            "tensor 'y': the model expects shape",
        ),
    ],
)
async def test_a_configuration_that_does_not_fit_is_refused(
    open_backend: Open, version: Path, changes: dict[str, Any], text: str
) -> None:
    toys.save_double(version / "model.xml")
    with pytest.raises(ModelLoadError, match=text):
        await open_backend(replace(toys.config(), **changes))


async def test_an_input_that_is_not_declared_is_named(open_backend: Open, version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    config = replace(graphs.sums_config(), default_model_filename="model.onnx")
    with pytest.raises(ModelLoadError, match=r"expects 1 inputs, model provides 2: .*: b"):
        await open_backend(replace(config, input=config.input[:1]))


async def test_a_model_that_cannot_be_reshaped_says_so(open_backend: Open, version: Path) -> None:
    toys.save_rows(version / "model.xml")
    with pytest.raises(
        ModelLoadError, match=r"first dimension must be -1; but shape expected .* \[4,2\]"
    ):
        await open_backend(toys.config())


async def test_dimensions_that_the_operators_do_not_take_are_refused(
    open_backend: Open, version: Path
) -> None:
    toys.save_product(version / "model.xml")
    given = graphs.parameters(RESHAPE_IO_LAYERS="YES")
    with pytest.raises(ModelLoadError, match="cannot be given the tensors of its configuration"):
        await open_backend(toys.config(DataType.FP32, 3, parameters=given))


async def test_a_tensor_of_any_rank_is_refused(open_backend: Open, version: Path) -> None:
    toys.save_product(version / "model.xml", None)
    with pytest.raises(ModelLoadError, match="tensor 'x' has any number of dimensions"):
        await open_backend(toys.config())


async def test_a_graph_of_nothing_is_refused(open_backend: Open, version: Path) -> None:
    (version / "model.xml").write_text('<?xml version="1.0"?><net name="n" version="11"></net>')
    with pytest.raises(ModelLoadError, match="its graph has no outputs"):
        await open_backend(ModelConfig("m"))


async def test_a_type_that_no_client_has_is_refused(open_backend: Open, version: Path) -> None:
    toys.save_double(version / "model.xml", kind="i4")
    with pytest.raises(
        ModelLoadError, match=r"tensor '[xy]' is of type i4, which cannot be served"
    ):
        await open_backend(toys.config())


@pytest.mark.parametrize("name", ["model.xml", "model.onnx", "model.tflite", "model.pb"])
@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x08\x07\x12\x04" * 5])
async def test_a_foreign_file_is_refused(
    open_backend: Open, version: Path, name: str, content: bytes
) -> None:
    (version / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match="failed to load model 'double': openvino error in"):
        await open_backend(toys.config(default_model_filename=name))


async def test_a_truncated_file_is_refused(open_backend: Open, version: Path) -> None:
    path = toys.save_double(version / "model.xml")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ModelLoadError, match=r"reading model: .* at offset 299"):
        await open_backend(toys.config())


async def test_a_missing_file_is_named(open_backend: Open, version: Path) -> None:
    with pytest.raises(ModelLoadError, match=rf"file {version}/model\.xml does not exist"):
        await open_backend(toys.config())


async def test_a_missing_engine_is_named(
    open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.save_double(version / "model.xml")
    monkeypatch.setitem(sys.modules, "openvino", None)
    openvino_backend._core.cache_clear()
    with pytest.raises(
        BackendNotInstalledError, match=r"pip install 'penstock\[openvino-runtime\]"
    ):
        await open_backend(toys.config())
