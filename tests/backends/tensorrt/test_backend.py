"""Single instances of plans over a stand-in that keeps the rules of TensorRT and CUDA."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensor_models import graphs
from backends.tensorrt.plans import tensor, write, write_double
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig, config_from_json
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InferenceError,
    InternalError,
    ModelLoadError,
)
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock_backends.tensorrt import TensorRtBackend

Open = Callable[..., Awaitable[TensorRtBackend]]


def _config(**fields: Any) -> ModelConfig:
    """A model of `double` for 8 rows."""
    given: dict[str, Any] = {
        "name": "m",
        "backend": "tensorrt",
        "platform": "tensorrt_plan",
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    return config_from_json(given | fields)


def _rows(count: int, start: float = 0, width: int = 4) -> Any:
    return np.arange(count * width, dtype=np.float32).reshape(count, width) + start


async def _answers(backend: Any, *arrays: Any, name: str = "x") -> list[Any]:
    outcomes = await backend.execute([graphs.request(**{name: array}) for array in arrays])
    return [(await _response(one)).outputs["y"].numpy() for one in outcomes]


async def _response(outcome: Any) -> InferenceResponse:
    """The response, also of an outcome that comes later; raises an error."""
    if not isinstance(outcome, InferenceResponse | Exception):
        (outcome,) = [response async for response in outcome]
    if isinstance(outcome, Exception):
        raise outcome
    response: InferenceResponse = outcome
    return response


def test_importing_it_imports_no_engine() -> None:
    code = (
        "import sys, penstock_backends.tensorrt;"
        " sys.exit('tensorrt' in sys.modules or 'cuda' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.contract("B-13")
async def test_requests_are_joined_and_get_their_rows(open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config())
    one, three = await _answers(backend, _rows(1), _rows(3, 10))
    assert one.tolist() == (2 * _rows(1)).tolist()
    assert three.tolist() == (2 * _rows(3, 10)).tolist()
    await _answers(backend, _rows(8, 50))
    assert three.tolist() == (2 * _rows(3, 10)).tolist()  # its memory is not used again


_PINNED = {"input_pinned_memory": {"enable": False}, "output_pinned_memory": {"enable": False}}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without pinned memory": _PINNED,
    "output stream": {"cuda": {"output_copy_stream": True}},
    "busy wait": {"cuda": {"busy_wait_events": True}},
    "graphs": {"cuda": {"graphs": True}},
    "eager": {"eager_batching": True},
    "all": {
        "eager_batching": True,
        "cuda": {"graphs": True, "output_copy_stream": True},
        "priority": "PRIORITY_MAX",
    },
}


@pytest.mark.contract("B-13", "C-23", "C-27")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_answers_are_the_same_whatever_the_way(
    open_backend: Open, version: Path, way: dict[str, Any]
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config(optimization=way))
    batches = [[_rows(rows, 10 * rows), _rows(1, rows)] for rows in (1, 2, 3, 5, 7)]
    found = await asyncio.gather(*(_answers(backend, *batch) for batch in batches))
    for batch, answers in zip(batches, found, strict=True):
        for given, answer in zip(batch, answers, strict=True):
            assert answer.tolist() == (2 * given).tolist()


# -- profiles --------------------------------------------------------------------------------------

NARROW = {"x": [[1, 1], [4, 8], [8, 16]]}
WIDE = {"x": [[1, 8], [1, 64], [2, 128]]}


def _variable(**fields: Any) -> ModelConfig:
    x, y = ({"name": name, "data_type": "TYPE_FP32", "dims": [-1]} for name in "xy")
    return _config(input=[x], output=[y], **fields)


@pytest.mark.contract("B-13", "I-06")
@pytest.mark.parametrize(
    ("shape", "index"), [((4, 8), 0), ((1, 16), 0), ((1, 60), 1), ((2, 14), 0), ((1, 100), 1)]
)
async def test_the_nearest_profile_runs(
    open_backend: Open, version: Path, gpu: Any, shape: tuple[int, int], index: int
) -> None:
    import tensorrt

    write_double(version / "model.plan", NARROW, WIDE)
    backend = await open_backend(_variable(), profiles=("0", "1"))
    ran: list[int] = []
    real = tensorrt.IExecutionContext.execute_async_v3

    def execute(self: Any, stream_handle: int) -> bool:
        ran.append(self._profile)
        return bool(real(self, stream_handle))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", execute)
        (answer,) = await _answers(backend, _rows(shape[0], 0, shape[1]))
    assert answer.shape == shape
    assert ran == [index]


async def test_what_no_profile_supports_is_refused_with_its_bounds(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", NARROW, WIDE)
    one = await open_backend(_variable())
    with pytest.raises(InternalError) as refused:
        await _answers(one, _rows(1, 0, 17))
    assert refused.value.message == (
        "request specifies invalid shape for m_0_0. Error details: input 'x': model expected the"
        " shape of dimension 1 to be between 1 and 16 but received 17"
    )
    both = await open_backend(_variable(), profiles=("0", "1"))
    with pytest.raises(InternalError) as refused:
        await _answers(both, _rows(3, 0, 20))  # a batch beyond the profile of this width
    assert refused.value.message.startswith(
        "failed to find any Optimization Profile among [ 0[0] 1[1]] to support the requested"
        " dimensions (or shape values): request specifies invalid shape for m_0_0."
    )
    (answer,) = await _answers(both, _rows(2, 0, 20))
    assert answer.shape == (2, 20)


@pytest.mark.contract("I-06")
@pytest.mark.parametrize(
    ("profile", "why"),
    [
        ("2", "configuration specified invalid profile 2 . Number of profiles supported by"),
        ("first", "unable to parse 'first'"),
    ],
)
async def test_profiles_that_are_not_there_are_refused(
    open_backend: Open, version: Path, profile: str, why: str
) -> None:
    write_double(version / "model.plan", NARROW, WIDE)
    groups = [{"kind": "KIND_GPU", "gpus": [0], "profile": [profile]}]
    with pytest.raises(ModelLoadError, match=why):
        await open_backend(_variable(instance_group=groups), profiles=(profile,))


# -- completion ------------------------------------------------------------------------------------


async def _completed(version: Path, **fields: Any) -> ModelConfig:
    bare = config_from_json({"name": "m", "backend": "tensorrt", **fields})
    return await TensorRtBackend.complete_config(bare, version, {})


@pytest.mark.contract("AC-07", "AC-05")
async def test_a_plan_completes_its_configuration(gpu: Any, version: Path) -> None:
    write_double(version / "model.plan", NARROW, WIDE)
    config = await _completed(version)
    assert config.max_batch_size == 8
    assert config.dynamic_batching is not None
    assert [(t.name, t.data_type, t.dims) for t in config.input] == [("x", DataType.FP32, (-1,))]
    assert [(t.name, t.data_type, t.dims) for t in config.output] == [("y", DataType.FP32, (-1,))]
    group = {"kind": "KIND_GPU", "gpus": [0], "profile": ["1"]}
    config = await _completed(version, instance_group=[group])
    assert config.max_batch_size == 2
    group["profile"] = ["1", "0"]
    assert (await _completed(version, instance_group=[group])).max_batch_size == 8


@pytest.mark.contract("AC-07")
async def test_a_batch_size_is_completed_for_declared_tensors(gpu: Any, version: Path) -> None:
    write_double(version / "model.plan")
    declared = _config(max_batch_size=0)
    config = await TensorRtBackend.complete_config(declared, version, {})
    assert (config.max_batch_size, config.input) == (8, declared.input)
    whole = [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}]
    config = await _completed(version, input=whole)
    assert (config.max_batch_size, config.output[0].dims) == (0, (-1, 4))


@pytest.mark.contract("AC-07")
async def test_a_batch_size_beyond_the_plan_is_refused(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ModelLoadError) as refused:
        await _completed(version, max_batch_size=9)
    assert refused.value.message == (
        "autofill failed for model 'm': configuration specified max-batch 9 but TensorRT engine"
        " only supports max-batch 8"
    )
    with pytest.raises(ModelLoadError, match="maximum batch size 9 for 'm_0_0', model maximum is"):
        await open_backend(_config(max_batch_size=9))


@pytest.mark.contract("AC-07")
async def test_rows_of_one_number_are_no_batch_unless_declared_so(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    tensors = [tensor("x", 8, 4), tensor("y", 8, 4, input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[8, 4]] * 3})
    config = await _completed(version)
    assert (config.max_batch_size, config.input[0].dims) == (0, (8, 4))
    assert (await _answers(await open_backend(config), _rows(8)))[0].shape == (8, 4)
    batching = await TensorRtBackend.complete_config(_config(max_batch_size=0), version, {})
    assert batching.max_batch_size == 8
    backend = await open_backend(batching)
    assert (await _answers(backend, _rows(3), _rows(5)))[1].shape == (5, 4)
    with pytest.raises(InternalError, match="dimension 0 to be between 8 and 8 but received 3"):
        await _answers(backend, _rows(3))


@pytest.mark.contract("AC-07")
async def test_scalars_have_no_batches(gpu: Any, open_backend: Open, version: Path) -> None:
    tensors = [tensor("x"), tensor("y", input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[]] * 3})
    config = await _completed(version)
    assert (config.max_batch_size, config.input[0].dims) == (0, (1,))
    (answer,) = await _answers(await open_backend(config), np.array([3], np.float32))
    assert answer.tolist() == [6]
    tensors = [tensor("x", -1, 4), tensor("y", input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[1, 4], [4, 4], [8, 4]]})
    with pytest.raises(ModelLoadError) as refused:
        await _completed(version, input=[{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}])
    assert refused.value.message == (
        "autofill failed for model 'm': model tensor shape configuration hints for dynamic batching"
        " but the underlying engine doesn't support batching."
    )


# -- shape tensors ---------------------------------------------------------------------------------

_SIZES = {"x": [[1, 2], [2, 2], [4, 2]], "size": [[1, 1], [2, 3], [4, 8]]}


def _write_stretch(path: Path) -> None:
    """`y` are the rows of `x`, stretched to as many columns as `size` says."""
    write(
        path,
        "stretch",
        [
            tensor("x", -1, 2),
            tensor("size", 2, dtype="INT32", shape_tensor=True),
            tensor("y", -1, -1, input=False),
            tensor("shape", 2, dtype="INT64", shape_tensor=True, input=False),
        ],
        _SIZES,
    )


@pytest.mark.contract("C-11", "C-17", "AC-07")
async def test_shape_tensors_have_their_values_once(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    _write_stretch(version / "model.plan")
    config = await _completed(version)
    size = config.inputs_by_name["size"]
    assert (size.data_type, size.dims, size.is_shape_tensor) == (DataType.INT32, (1,), True)
    assert config.outputs_by_name["shape"].is_shape_tensor
    assert config.max_batch_size == 4
    backend = await open_backend(config)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    sizes = np.full((3, 1), 3, np.int32)
    requests = [graphs.request(x=x[:1], size=sizes[:1]), graphs.request(x=x[1:], size=sizes[1:])]
    first, second = [await _response(one) for one in await backend.execute(requests)]
    assert first.outputs["y"].numpy().tolist() == [[0, 1, 2]]
    assert second.outputs["y"].numpy().tolist() == [[3, 4, 5], [0, 1, 2]]
    assert second.outputs["shape"].numpy().tolist() == [[3], [3]]
    with pytest.raises(InternalError, match="shape value at index 1 to be between 1 and 8 but rec"):
        await _response((await backend.execute([graphs.request(x=x[:1], size=9 * sizes[:1])]))[0])
    wrong = graphs.request(x=x[:2], size=np.array([[1], [2]], np.int32))
    (refused,) = await backend.execute([wrong])
    assert "must have the same values in each row" in str(refused)


@pytest.mark.contract("C-11", "C-17")
async def test_an_output_larger_than_its_memory_is_refused_before_it_is_written(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    """The greatest values of shape tensors need not make the largest outputs."""
    tensors = [
        tensor("x", -1, 8),
        tensor("from", 2, dtype="INT32", shape_tensor=True),
        tensor("y", -1, -1, input=False),
    ]
    profile = {"x": [[1, 8], [2, 8], [4, 8]], "from": [[1, 0], [2, 4], [4, 6]]}
    write(version / "model.plan", "tail", tensors, profile)
    backend = await open_backend(await _completed(version))
    x = _rows(4, width=8)
    whole, part = (
        graphs.request(**{"x": x, "from": np.full((4, 1), start, np.int32)}) for start in (0, 6)
    )
    with pytest.raises(InternalError, match="unexpected size for output 'y', byte-size 32 is less"):
        await _response((await backend.execute([whole]))[0])
    answer = await _response((await backend.execute([part]))[0])
    assert answer.outputs["y"].numpy().tolist() == x[:, 6:].tolist()


@pytest.mark.contract("C-11", "C-14", "C-17")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "is a shape tensor but the model configuration doesn't mark it as a shape tensor."),
        (
            {"is_shape_tensor": True, "is_non_linear_format_io": True},
            "'is_non_linear_format_io' is incorrectly set to true in the model configuration.",
        ),
    ],
)
async def test_wrong_marks_are_refused(
    gpu: Any, open_backend: Open, version: Path, fields: dict[str, Any], why: str
) -> None:
    _write_stretch(version / "model.plan")
    config = await _completed(version)
    size = replace(config.inputs_by_name["size"], is_shape_tensor=False)
    config = replace(config, input=(config.input[0], replace(size, **fields)))
    with pytest.raises(ModelLoadError, match=f"input 'size' for model 'm' .*{why}"):
        await open_backend(config)


# -- formats ---------------------------------------------------------------------------------------


def _write_channels(path: Path, channels: int = 3) -> None:
    shape = [[1, channels, 2, 2], [2, channels, 2, 2], [4, channels, 2, 2]]
    tensors = [
        tensor("x", -1, channels, 2, 2, format="CHW4", dtype="HALF"),
        tensor("y", -1, channels, 2, 2, format="CHW4", dtype="HALF", input=False),
    ]
    write(path, "double", tensors, {"x": shape})


def _in_fours(images: Any) -> Any:
    """Images in the layout CHW4: four channels together, filled up."""
    rows, channels, height, width = images.shape
    filled = np.zeros((rows, -(-channels // 4) * 4, height, width), images.dtype)
    filled[:, :channels] = images
    return filled.reshape(rows, -1, 4, height, width).transpose(0, 1, 3, 4, 2)


@pytest.mark.contract("C-14", "C-17", "V-15")
async def test_formats_that_are_not_linear_are_passed_as_they_are(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    _write_channels(version / "model.plan")
    config = await _completed(version)
    assert config.input[0].is_non_linear_format_io
    assert config.input[0].dims == (3, 2, 2)
    backend = await open_backend(config)
    images = np.arange(36, dtype=np.float16).reshape(3, 3, 2, 2)
    requests = [
        graphs.request(x=Tensor(DataType.FP16, part.shape, _in_fours(part).tobytes()))
        for part in (images[:1], images[1:])
    ]
    first, second = [await _response(one) for one in await backend.execute(requests)]
    assert first.outputs["y"].numpy().shape == (1, 4, 2, 2)
    assert bytes(second.outputs["y"].buffer) == _in_fours(2 * images[1:]).tobytes()
    short = graphs.request(x=Tensor(DataType.FP16, (1, 3, 2, 2), bytes(24)))
    (refused,) = await backend.execute([short])
    assert "is filled up to multiples of 4. Expected 32, got 24" in str(refused)


async def test_a_filled_dimension_has_to_be_fixed(gpu: Any, version: Path) -> None:
    _write_channels(version / "model.plan", channels=-1)
    with pytest.raises(ModelLoadError, match="a format that fills up its dimension 1, which must"):
        await _completed(version)


async def test_bfloat16_is_served_as_bits(open_backend: Open, version: Path) -> None:
    tensors = [
        tensor("x", -1, 2, dtype="BF16"),
        tensor("y", -1, 2, dtype="BF16", input=False),
    ]
    write(version / "model.plan", "bits", tensors, {"x": [[1, 2], [2, 2], [4, 2]]})
    x, y = ({"name": name, "data_type": "TYPE_BF16", "dims": [2]} for name in "xy")
    backend = await open_backend(_config(max_batch_size=4, input=[x], output=[y]))
    bits = Tensor.from_numpy(np.array([[0x3F80, 0xC000]], np.uint16), DataType.BF16)
    (outcome,) = await backend.execute([graphs.request(x=bits)])
    output = (await _response(outcome)).outputs["y"]
    assert (output.datatype, bytes(output.buffer)) == (DataType.BF16, bytes(bits.buffer))


@pytest.mark.parametrize("x", [[1, 0, 2], [0] * 16, [3] * 16])
async def test_an_output_may_have_a_shape_that_follows_from_values(
    open_backend: Open, version: Path, x: list[float]
) -> None:
    tensors = [tensor("x", -1), tensor("y", -1, dtype="INT64", input=False)]
    write(version / "model.plan", "nonzero", tensors, {"x": [[1], [4], [16]]})
    x_, y = (
        {"name": name, "data_type": datatype, "dims": [-1]}
        for name, datatype in (("x", "TYPE_FP32"), ("y", "TYPE_INT64"))
    )
    backend = await open_backend(_config(max_batch_size=0, input=[x_], output=[y]))
    (answer,) = await _answers(backend, np.array(x, np.float32))
    assert answer.tolist() == np.flatnonzero(x).tolist()
    large = np.ones(16, np.float32)
    assert len((await _answers(backend, large))[0]) == 16


async def test_memory_of_such_an_output_grows_while_there_is_some(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorrt

    monkeypatch.setattr(tensorrt.IExecutionContext, "get_max_output_size", lambda *_: 8)
    tensors = [tensor("x", -1), tensor("y", -1, dtype="INT64", input=False)]
    write(version / "model.plan", "nonzero", tensors, {"x": [[1], [4], [64]]})
    config = await _completed(version)
    backend = await open_backend(config)
    for length in range(1, 33):
        (answer,) = await _answers(backend, np.ones(length, np.float32))
        assert answer.tolist() == [*range(length)]
    assert sum(map(len, gpu.gpu.memory.values())) < 1024  # 256 of them for `x`
    gpu.gpu.most_bytes = 1024
    with pytest.raises(InternalError, match=r"unable to enqueue for inference m_0_0: .*no memory"):
        await _answers(backend, np.ones(64, np.float32))
    (answer,) = await _answers(backend, np.ones(2, np.float32))
    assert answer.tolist() == [0, 1]


async def test_ragged_inputs_are_joined_end_to_end(open_backend: Open, version: Path) -> None:
    tensors = [tensor("x", -1), tensor("ends", -1), tensor("y", -1, input=False)]
    profile = {"x": [[1], [8], [32]], "ends": [[1], [2], [4]]}
    write(version / "model.plan", "sums", tensors, profile)
    ragged = {"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True}
    y = {"name": "y", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}}
    ends = {
        "kind": "BATCH_ACCUMULATED_ELEMENT_COUNT",
        "target_name": ["ends"],
        "data_type": "TYPE_FP32",
        "source_input": ["x"],
    }
    config = _config(max_batch_size=4, input=[ragged], output=[y], batch_input=[ends])
    backend = await open_backend(config)
    arrays = [np.ones((1, length), np.float32) for length in (1, 5, 3)]
    assert [one.tolist() for one in await _answers(backend, *arrays)] == [[1], [5], [3]]


async def test_inputs_that_lie_side_by_side_are_not_joined(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    settings = {"coalesce-request-input": "true"}
    backend = await open_backend(_config(), settings=settings)
    whole = _rows(6)
    for parts in ([whole[:2], whole[2:5], whole[5:]], [whole[3:], whole[:3]]):
        answers = await _answers(backend, *parts)
        assert np.concatenate(answers).tolist() == (2 * np.concatenate(parts)).tolist()


@pytest.mark.contract("B-13")
async def test_a_text_encoder_has_its_tokenizer_in_front(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    """Texts of a batch run in the profiles that are for their lengths."""
    names = ("input_ids", "attention_mask")
    inputs = [tensor(name, -1, -1, dtype="INT64") for name in names]
    short, long = ([[1, 1], [4, 4], [8, 8]], [[1, 8], [2, 32], [8, 64]])
    profiles = [dict.fromkeys(names, bounds) for bounds in (short, long)]
    outputs = [tensor("y", -1, 2, input=False)]
    write(version / "model.plan", "encoder", [*inputs, *outputs], *profiles)
    graphs.save_tokenizer(version / "tokenizer.json")
    config = await _completed(
        version, parameters={"penstock.tokenizer": {"string_value": "tokenizer.json"}}
    )
    assert [(one.name, one.dims) for one in config.input] == [("TEXT", (1,))]
    assert config.max_batch_size == 8
    backend = await open_backend(config, profiles=("0", "1"))
    texts = [["red"], [" ".join(["red"] * 40)]]
    requests = [graphs.request(TEXT=Tensor.from_strings(text, (1, 1))) for text in texts]
    found = [await _response(one) for one in await backend.execute(requests)]
    assert [one.outputs["y"].numpy()[0, 1] for one in found] == [3, 42]  # with [CLS] and [SEP]


# -- CUDA graphs -----------------------------------------------------------------------------------


def _launches(gpu: Any) -> int:
    calls: list[str] = gpu.gpu.calls
    return calls.count("cudaGraphLaunch")


def _graphs(*specs: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimization": {"cuda": {"graphs": True, "graph_spec": list(specs)}}}


@pytest.mark.contract("C-23")
async def test_graphs_of_default_batch_sizes_are_launched(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config(optimization={"cuda": {"graphs": True}}))
    for rows in range(1, 9):
        before = _launches(gpu)
        (answer,) = await _answers(backend, _rows(rows))
        assert answer.tolist() == (2 * _rows(rows)).tolist()
        assert _launches(gpu) - before == (rows in (1, 2, 3, 4, 6, 8))


@pytest.mark.contract("C-23")
async def test_a_graph_runs_smaller_batches_down_to_its_bound(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", NARROW)
    lower = {"batch_size": 2, "input": {"x": {"dim": ["5"]}}}
    spec = {"batch_size": 4, "input": {"x": {"dim": ["10"]}}, "graph_lower_bound": lower}
    backend = await open_backend(_variable(**_graphs(spec)))
    for shape, launched in {
        (4, 10): 1,
        (3, 7): 1,
        (2, 5): 1,
        (1, 7): 0,
        (3, 4): 0,
        (5, 7): 0,
    }.items():
        before = _launches(gpu)
        (answer,) = await _answers(backend, _rows(shape[0], 1, shape[1]))
        assert answer.tolist() == (2 * _rows(shape[0], 1, shape[1])).tolist()
        assert _launches(gpu) - before == launched, shape


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"batch_size": 9}, "graph spec expects 'batch_size' to be >= 1 and <= 8"),
        (
            {"batch_size": 1, "graph_lower_bound": {"batch_size": 2}},
            "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1},
            },
            "graph lower bound spec expects shape for input 'x'",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1, "input": {"x": {"dim": ["4", "1"]}}},
            },
            "graph lower bound spec expects to have '1' dimensions, got 2",
        ),
        (
            {"batch_size": 1, "input": {"x": {"dim": ["-1"]}}},
            "graph spec expects input 'x' to have dimension >= 0",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1, "input": {"x": {"dim": ["5"]}}},
            },
            "graph lower bound spec expects input 'x' to have dimension <= 4",
        ),
    ],
)
@pytest.mark.contract("C-23")
def test_wrong_graphs_are_refused_in_triton_s_words(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TensorRtBackend.check_config(_config(**_graphs(spec)))
    assert refused.value.message == why
    with pytest.raises(ConfigError, match="expects 'batch_size' to be 0 if 'max_batch_size' is 0"):
        TensorRtBackend.check_config(_config(max_batch_size=0, **_graphs({"batch_size": 1})))


@pytest.mark.contract("C-23")
async def test_graphs_that_cannot_be_captured_are_left_out(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_double(version / "model.plan", NARROW)
    specs = [
        {"batch_size": 1, "input": {"z": {"dim": ["4"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["17"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["4"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["4"]}}},
    ]
    backend = await open_backend(_variable(**_graphs(*specs)))
    told = [message for message in caplog.messages if "CUDA graph" in message]
    assert len(told) == 3
    assert "between 1 and 16 but received 17" in told[1]
    assert "there is one already" in told[2]
    (answer,) = await _answers(backend, _rows(1))
    assert answer.tolist() == (2 * _rows(1)).tolist()
    assert _launches(gpu) == 1


@pytest.mark.contract("C-23")
async def test_graphs_are_captured_of_inputs_that_are_zeros(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    """Numbers of a table, say, that were anything would be read far beyond it."""
    tensors = [tensor("x", -1, 4), tensor("y", -1, 4, input=False)]
    write(version / "model.plan", "lookup", tensors, {"x": [[1, 4], [4, 4], [8, 4]]})
    backend = await open_backend(_config(optimization={"cuda": {"graphs": True}}))
    (answer,) = await _answers(backend, np.ones((1, 4), np.float32))
    assert answer.tolist() == [[0.5] * 4]
    assert _launches(gpu) == 1


@pytest.mark.contract("C-23")
async def test_shape_tensors_have_no_graphs(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write_stretch(version / "model.plan")
    config = await _completed(version, optimization={"cuda": {"graphs": True}})
    await open_backend(config)
    assert "CUDA graphs are not captured, as the plan has shape tensors" in caplog.text


# -- placement -------------------------------------------------------------------------------------


@pytest.mark.contract("C-22")
@pytest.mark.parametrize(("priority", "number"), [("MAX", -5), ("MIN", 0), ("DEFAULT", 0)])
async def test_streams_have_the_priority_of_the_model(
    gpu: Any, open_backend: Open, version: Path, priority: str, number: int
) -> None:
    write_double(version / "model.plan")
    await open_backend(_config(optimization={"priority": f"PRIORITY_{priority}"}))
    assert {stream.priority for stream in gpu.gpu.streams.values()} == {number}


@pytest.mark.contract("R-27")
async def test_a_gpu_has_the_file_of_its_capability(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "hopper.plan")
    config = _config(cc_model_filenames={"9.0": "hopper.plan", "7.5": "turing.plan"})
    backend = await open_backend(config)
    assert (await _answers(backend, _rows(1)))[0].tolist() == (2 * _rows(1)).tolist()
    gpu.gpu.capability = "8.0"
    with pytest.raises(
        ModelLoadError, match=r"unable to find '.*/model.plan' for model 'm' on a G"
    ):
        await open_backend(config)


@pytest.mark.contract("I-09")
async def test_a_plan_may_run_on_a_dla_core(gpu: Any, open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config(), secondary_devices=(("KIND_NVDLA", 1),))
    assert (await _answers(backend, _rows(1)))[0].tolist() == (2 * _rows(1)).tolist()
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(_config(), secondary_devices=(("KIND_NVDLA", 2),))
    assert refused.value.message == (
        "unable to create TensorRT runtime with DLA Core ID: 2, available number of DLA cores: 2"
    )


async def test_instances_share_the_plan(gpu: Any, open_backend: Open, version: Path) -> None:
    import tensorrt

    write_double(version / "model.plan")
    config = _config()
    read: list[int] = []
    real = tensorrt.Runtime.deserialize_cuda_engine

    def deserialize(self: Any, serialized_engine: Any) -> Any:
        read.append(len(serialized_engine))
        return real(self, serialized_engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.Runtime, "deserialize_cuda_engine", deserialize)
        both = [await open_backend(config), await open_backend(config)]
    assert len(read) == 1
    for backend in both:
        assert (await _answers(backend, _rows(2)))[0].tolist() == (2 * _rows(2)).tolist()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that exports plugins."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler here")
    source, library = tmp_path / "plugin.c", tmp_path / "plugin.so"
    source.write_text("int getPluginCreators(void) { return 0; }")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.contract("B-13")
async def test_plugins_are_loaded_once(
    gpu: Any, open_backend: Open, version: Path, library: Path
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    for _ in range(2):
        await open_backend(_config(), settings={"plugins": f"{library};"})
    assert tensorrt.get_plugin_registry()._libraries == [str(library)]
    with pytest.raises(ModelLoadError, match=r"backend-config plugins: .*no.so"):
        await open_backend(_config(), settings={"plugins": f"{library};/no.so"})


@pytest.mark.contract("B-13")
@pytest.mark.parametrize("strategy", ["STATIC", "ON_PROFILE_CHANGE"])
async def test_contexts_have_the_strategy_of_the_model(
    gpu: Any, open_backend: Open, version: Path, strategy: str
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    parameters = {"execution_context_allocation_strategy": {"string_value": strategy}}
    await open_backend(_config(parameters=parameters))
    contexts = [one for one in gc.get_objects() if type(one) is tensorrt.IExecutionContext]
    assert {one._strategy.name for one in contexts} == {strategy}


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "'.*model.plan' is empty"),
        (b"no plan at all", "unable to create TensorRT engine: .*kMAGIC_TAG failed.; '.*' must be"),
        (None, "unable to create TensorRT engine: IRuntime::deserializeCudaEngine: "),
    ],
    ids=["empty", "foreign", "truncated"],
)
async def test_broken_plans_are_refused_with_the_reason(
    open_backend: Open, version: Path, content: bytes | None, why: str
) -> None:
    path = write_double(version / "model.plan")
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    with pytest.raises(ModelLoadError, match=why):
        await open_backend(_config())
    with pytest.raises(ModelLoadError, match=why):
        await _completed(version)


@pytest.mark.contract("B-13")
async def test_a_plan_of_another_version_has_to_be_compatible_and_allowed(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", version="10.3.0", compatible=True)
    with pytest.raises(ModelLoadError, match=r"Version: 10.3.0; .* TensorRT 11.4.* version-compat"):
        await open_backend(_config())
    allowed = {"version-compatible": "true"}
    backend = await open_backend(_config(), settings=allowed)
    assert (await _answers(backend, _rows(1)))[0].tolist() == (2 * _rows(1)).tolist()
    write_double(version / "model.plan", version="10.3.0")
    with pytest.raises(ModelLoadError, match="Version tag does not match"):
        await open_backend(_config(), settings=allowed)


WRONG = [
    (
        {"input": [{"name": "z"}]},
        "unexpected inference input 'z' for model 'm', allowed inputs are",
    ),
    ({"output": [{"name": "z"}]}, "unexpected inference output 'z' for model 'm', allowed outputs"),
    (
        {"input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [4]}]},
        "configuration expects datatype TYPE_INT32 for input 'x', model provides TYPE_FP32",
    ),
    (
        {"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4, 1]}]},
        r"the model expects shape \[-1,4\] but the model configuration specifies shape",
    ),
]


@pytest.mark.parametrize(("fields", "why"), WRONG)
async def test_wrong_tensors_are_refused(
    open_backend: Open, version: Path, fields: dict[str, Any], why: str
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ModelLoadError, match=why):
        await open_backend(_config(**fields))


async def test_datatypes_that_nothing_serves_are_refused(open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan", dtype="FP8")
    with pytest.raises(ModelLoadError, match="tensor 'x' is of type FP8, which cannot be served"):
        await open_backend(_config())


@pytest.mark.parametrize("kind", [InstanceKind.KIND_CPU, InstanceKind.KIND_MODEL])
async def test_other_devices_are_refused(kind: InstanceKind, version: Path) -> None:
    config = replace(_config(), instance_group=(InstanceGroup(kind=kind),))
    why = (
        "unable to load model 'm', TensorRT backend supports only GPU device; without a GPU, serve"
    )
    with pytest.raises(ConfigError, match=why):
        TensorRtBackend.check_config(config)
    with pytest.raises(ConfigError, match=why):
        await TensorRtBackend.complete_config(config, version, {})


async def test_a_gpu_that_is_not_there_is_told(open_backend: Open, version: Path, gpu: Any) -> None:
    write_double(version / "model.plan")
    gpu.gpu.gpus = 0
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(_config())
    assert refused.value.message == (
        "model 'm': TensorRT runs on GPUs of NVIDIA only, and GPU 0 cannot be used: invalid device"
        " ordinal; without a GPU, serve the ONNX model that the plan was built of with backend"
        " 'onnxruntime'"
    )


@pytest.mark.parametrize("package", ["tensorrt", "cuda.bindings.runtime"])
async def test_a_package_that_is_not_there_is_told(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    write_double(version / "model.plan")
    monkeypatch.setitem(sys.modules, package, None)
    why = r"install them with: pip install 'penstock\[tensorrt\]' \(.*; without a GPU, serve"
    with pytest.raises(BackendNotInstalledError, match=why):
        await open_backend(_config())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"coalesce-request-input": "maybe"}, "coalesce-request-input must be true or false"),
        ({"version-compatible": "maybe"}, "version-compatible must be true or false"),
        ({"execution-policy": "FREE"}, "execution-policy must be DEVICE_BLOCKING or BLOCKING, not"),
    ],
)
async def test_wrong_settings_are_refused(
    open_backend: Open, version: Path, settings: dict[str, str], why: str
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ConfigError, match=why):
        await open_backend(_config(), settings=settings)


def test_wrong_strategies_are_refused() -> None:
    parameters = {"execution_context_allocation_strategy": {"string_value": "USER_MANAGED"}}
    with pytest.raises(ConfigError, match="must be STATIC or ON_PROFILE_CHANGE, not 'USER_MANAGED"):
        TensorRtBackend.check_config(_config(parameters=parameters))


@pytest.mark.parametrize("side", ["input", "output"])
async def test_memory_that_is_not_there_is_an_error_of_the_load(
    gpu: Any, open_backend: Open, version: Path, side: str
) -> None:
    write_double(version / "model.plan")
    gpu.gpu.most_bytes = 100 if side == "input" else 200
    name = {"input": "x", "output": "y"}[side]
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(_config())
    assert refused.value.message == (
        f"unable to allocate memory for {side} '{name}' for m_0_0: out of memory"
    )
    gpu.gpu.most_bytes = 1 << 20
    assert len(await _answers(await open_backend(_config()), _rows(1))) == 1


async def test_a_gpu_that_fails_meanwhile_fails_the_load(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_double(version / "model.plan")
    failed = (gpu.cudaError_t.cudaErrorMemoryAllocation, None)
    monkeypatch.setattr(gpu, "cudaEventCreateWithFlags", lambda *_: failed)
    with pytest.raises(ModelLoadError, match="unable to open 'm_0_0' on GPU 0: out of memory"):
        await open_backend(_config())


FAILURES: list[tuple[str, str, Any, str]] = [
    (
        "ICudaEngine",
        "create_execution_context",
        None,
        "unable to create TensorRT context: no reason was given",
    ),
    (
        "IExecutionContext",
        "set_optimization_profile_async",
        False,
        r"Can not set the specified optimization profile default\[0\] for m_0_0: no reason",
    ),
    (
        "IExecutionContext",
        "set_input_shape",
        False,
        r"trt failed to set binding dimension to \[8,4\] for input 'x' for m_0_0: no reason",
    ),
    (
        "IExecutionContext",
        "infer_shapes",
        ["x"],
        "failed to specify the dimensions of all input bindings: x",
    ),
    (
        "IExecutionContext",
        "infer_shapes",
        RuntimeError("division by zero"),
        "unable to infer shapes for m_0_0: division by zero",
    ),
]


@pytest.mark.parametrize(("kind", "method", "answer", "why"), FAILURES)
async def test_what_tensorrt_refuses_fails_the_load(
    open_backend: Open, version: Path, kind: str, method: str, answer: Any, why: str
) -> None:
    import tensorrt

    def refusing(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    write_double(version / "model.plan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(getattr(tensorrt, kind), method, refusing)
        with pytest.raises(InferenceError, match=why):
            await open_backend(_config())


@pytest.mark.contract("C-23")
async def test_a_plan_that_cannot_be_captured_runs_without_graphs(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    real = tensorrt.IExecutionContext.execute_async_v3

    def uncaptured(self: Any, stream_handle: int) -> bool:
        if gpu.gpu.streams[stream_handle].captured is not None:
            return False
        return bool(real(self, stream_handle))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", uncaptured)
        backend = await open_backend(_config(optimization={"cuda": {"graphs": True}}))
        assert "unable to record CUDA graph: unable to enqueue for inference m_0_0" in caplog.text
        assert (await _answers(backend, _rows(1)))[0].tolist() == (2 * _rows(1)).tolist()
    assert not _launches(gpu)


async def test_a_run_that_fails_harms_no_other(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    backend = await open_backend(_config())

    def full(self: Any, stream_handle: int) -> bool:
        self._engine._logger.log(tensorrt.ILogger.ERROR, "Cuda Runtime (out of memory)")
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", full)
        with pytest.raises(InternalError) as failed:
            await _answers(backend, _rows(1))
    assert failed.value.message == (
        "unable to enqueue for inference m_0_0: Cuda Runtime (out of memory)"
    )
    assert ("penstock_backends.tensorrt.plan", logging.ERROR) in [
        (record.name, record.levelno) for record in caplog.records
    ]
    assert (await _answers(backend, _rows(1)))[0].tolist() == (2 * _rows(1)).tolist()


async def test_a_gpu_that_has_failed_fails_requests(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config())
    gpu.gpu.failure = gpu.cudaError_t.cudaErrorIllegalAddress
    why = "failed to run TRT inference for m_0_0: an illegal memory access was encountered"
    assert await backend.healthy()
    with pytest.raises(InternalError, match=why):
        await _answers(backend, _rows(1))
    assert not await backend.healthy()
    await backend.finalize()
    assert "cudaFree on GPU 0: an illegal memory access was encountered" in caplog.messages
    gpu.reset()


@pytest.mark.contract("C-27")
async def test_a_batch_is_prepared_while_another_computes(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config(optimization={"eager_batching": True}))
    first = await backend.execute([graphs.request(x=_rows(1))])
    second = await backend.execute([graphs.request(x=_rows(2))])  # nobody has read the first
    assert [(await _response(one)).outputs["y"].shape for one in (*second, *first)] == [
        (2, 4),
        (1, 4),
    ]
    wrong = await backend.execute([graphs.request(x=_rows(9))])
    with pytest.raises(InternalError, match="between 1 and 8 but received 9"):
        await _response(wrong[0])


async def test_what_nobody_reads_is_waited_for_at_the_end(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(_config(optimization={"eager_batching": True}))
    outcomes = await backend.execute([graphs.request(x=_rows(1))])
    assert len(outcomes) == 1  # the fixture sees that all was given back
