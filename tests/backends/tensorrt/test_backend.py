"""Single instances of plans over a stand-in that keeps the rules of TensorRT and CUDA."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensor_models import graphs
from backends.tensorrt.asking import (
    NARROW,
    Open,
    asked,
    completed_config,
    plan_config,
    response_of,
    rows_of,
    variable_config,
    write_stretch,
)
from backends.tensorrt.plans import tensor, write, write_double
from penstock.core.errors import (
    InternalError,
    ModelLoadError,
)
from penstock.core.tensor import DataType, Tensor
from penstock_backends.tensorrt import TensorRtBackend


def test_importing_it_imports_no_engine() -> None:
    code = (
        "import sys, penstock_backends.tensorrt;"
        " sys.exit('tensorrt' in sys.modules or 'cuda' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.contract("B-13")
async def test_requests_are_joined_and_get_their_rows(open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config())
    one, three = await asked(backend, rows_of(1), rows_of(3, 10))
    assert one.tolist() == (2 * rows_of(1)).tolist()
    assert three.tolist() == (2 * rows_of(3, 10)).tolist()
    await asked(backend, rows_of(8, 50))
    assert three.tolist() == (2 * rows_of(3, 10)).tolist()  # its memory is not used again


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
    backend = await open_backend(plan_config(optimization=way))
    batches = [[rows_of(rows, 10 * rows), rows_of(1, rows)] for rows in (1, 2, 3, 5, 7)]
    found = await asyncio.gather(*(asked(backend, *batch) for batch in batches))
    for batch, answers in zip(batches, found, strict=True):
        for given, answer in zip(batch, answers, strict=True):
            assert answer.tolist() == (2 * given).tolist()


# -- profiles --------------------------------------------------------------------------------------

WIDE = {"x": [[1, 8], [1, 64], [2, 128]]}


@pytest.mark.contract("B-13", "I-06")
@pytest.mark.parametrize(
    ("shape", "index"), [((4, 8), 0), ((1, 16), 0), ((1, 60), 1), ((2, 14), 0), ((1, 100), 1)]
)
async def test_the_nearest_profile_runs(
    open_backend: Open, version: Path, gpu: Any, shape: tuple[int, int], index: int
) -> None:
    import tensorrt

    write_double(version / "model.plan", NARROW, WIDE)
    backend = await open_backend(variable_config(), profiles=("0", "1"))
    ran: list[int] = []
    real = tensorrt.IExecutionContext.execute_async_v3

    def execute(self: Any, stream_handle: int) -> bool:
        ran.append(self._profile)
        return bool(real(self, stream_handle))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", execute)
        (answer,) = await asked(backend, rows_of(shape[0], 0, shape[1]))
    assert answer.shape == shape
    assert ran == [index]


async def test_what_no_profile_supports_is_refused_with_its_bounds(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", NARROW, WIDE)
    one = await open_backend(variable_config())
    with pytest.raises(InternalError) as refused:
        await asked(one, rows_of(1, 0, 17))
    assert refused.value.message == (
        "request specifies invalid shape for m_0_0. Error details: input 'x': model expected the"
        " shape of dimension 1 to be between 1 and 16 but received 17"
    )
    both = await open_backend(variable_config(), profiles=("0", "1"))
    with pytest.raises(InternalError) as refused:
        await asked(both, rows_of(3, 0, 20))  # a batch beyond the profile of this width
    assert refused.value.message.startswith(
        "failed to find any Optimization Profile among [ 0[0] 1[1]] to support the requested"
        " dimensions (or shape values): request specifies invalid shape for m_0_0."
    )
    (answer,) = await asked(both, rows_of(2, 0, 20))
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
        await open_backend(variable_config(instance_group=groups), profiles=(profile,))


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.contract("AC-07", "AC-05")
async def test_a_plan_completes_its_configuration(gpu: Any, version: Path) -> None:
    write_double(version / "model.plan", NARROW, WIDE)
    config = await completed_config(version)
    assert config.max_batch_size == 8
    assert config.dynamic_batching is not None
    assert [(t.name, t.data_type, t.dims) for t in config.input] == [("x", DataType.FP32, (-1,))]
    assert [(t.name, t.data_type, t.dims) for t in config.output] == [("y", DataType.FP32, (-1,))]
    group = {"kind": "KIND_GPU", "gpus": [0], "profile": ["1"]}
    config = await completed_config(version, instance_group=[group])
    assert config.max_batch_size == 2
    group["profile"] = ["1", "0"]
    assert (await completed_config(version, instance_group=[group])).max_batch_size == 8


@pytest.mark.contract("AC-07")
async def test_a_batch_size_is_completed_for_declared_tensors(gpu: Any, version: Path) -> None:
    write_double(version / "model.plan")
    declared = plan_config(max_batch_size=0)
    config = await TensorRtBackend.complete_config(declared, version, {})
    assert (config.max_batch_size, config.input) == (8, declared.input)
    whole = [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}]
    config = await completed_config(version, input=whole)
    assert (config.max_batch_size, config.output[0].dims) == (0, (-1, 4))


@pytest.mark.contract("AC-07")
async def test_a_batch_size_beyond_the_plan_is_refused(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ModelLoadError) as refused:
        await completed_config(version, max_batch_size=9)
    assert refused.value.message == (
        "autofill failed for model 'm': configuration specified max-batch 9 but TensorRT engine"
        " only supports max-batch 8"
    )
    with pytest.raises(ModelLoadError, match="maximum batch size 9 for 'm_0_0', model maximum is"):
        await open_backend(plan_config(max_batch_size=9))


@pytest.mark.contract("AC-07")
async def test_rows_of_one_number_are_no_batch_unless_declared_so(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    tensors = [tensor("x", 8, 4), tensor("y", 8, 4, input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[8, 4]] * 3})
    config = await completed_config(version)
    assert (config.max_batch_size, config.input[0].dims) == (0, (8, 4))
    assert (await asked(await open_backend(config), rows_of(8)))[0].shape == (8, 4)
    batching = await TensorRtBackend.complete_config(plan_config(max_batch_size=0), version, {})
    assert batching.max_batch_size == 8
    backend = await open_backend(batching)
    assert (await asked(backend, rows_of(3), rows_of(5)))[1].shape == (5, 4)
    with pytest.raises(InternalError, match="dimension 0 to be between 8 and 8 but received 3"):
        await asked(backend, rows_of(3))


@pytest.mark.contract("AC-07")
async def test_scalars_have_no_batches(gpu: Any, open_backend: Open, version: Path) -> None:
    tensors = [tensor("x"), tensor("y", input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[]] * 3})
    config = await completed_config(version)
    assert (config.max_batch_size, config.input[0].dims) == (0, (1,))
    (answer,) = await asked(await open_backend(config), np.array([3], np.float32))
    assert answer.tolist() == [6]
    tensors = [tensor("x", -1, 4), tensor("y", input=False)]
    write(version / "model.plan", "double", tensors, {"x": [[1, 4], [4, 4], [8, 4]]})
    with pytest.raises(ModelLoadError) as refused:
        await completed_config(
            version, input=[{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
        )
    assert refused.value.message == (
        "autofill failed for model 'm': model tensor shape configuration hints for dynamic batching"
        " but the underlying engine doesn't support batching."
    )


# -- shape tensors ---------------------------------------------------------------------------------


@pytest.mark.contract("C-11", "C-17", "AC-07")
async def test_shape_tensors_have_their_values_once(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_stretch(version / "model.plan")
    config = await completed_config(version)
    size = config.inputs_by_name["size"]
    assert (size.data_type, size.dims, size.is_shape_tensor) == (DataType.INT32, (1,), True)
    assert config.outputs_by_name["shape"].is_shape_tensor
    assert config.max_batch_size == 4
    backend = await open_backend(config)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    sizes = np.full((3, 1), 3, np.int32)
    requests = [graphs.request(x=x[:1], size=sizes[:1]), graphs.request(x=x[1:], size=sizes[1:])]
    first, second = [await response_of(one) for one in await backend.execute(requests)]
    assert first.outputs["y"].numpy().tolist() == [[0, 1, 2]]
    assert second.outputs["y"].numpy().tolist() == [[3, 4, 5], [0, 1, 2]]
    assert second.outputs["shape"].numpy().tolist() == [[3], [3]]
    with pytest.raises(InternalError, match="shape value at index 1 to be between 1 and 8 but rec"):
        await response_of((await backend.execute([graphs.request(x=x[:1], size=9 * sizes[:1])]))[0])
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
    backend = await open_backend(await completed_config(version))
    x = rows_of(4, width=8)
    whole, part = (
        graphs.request(**{"x": x, "from": np.full((4, 1), start, np.int32)}) for start in (0, 6)
    )
    with pytest.raises(InternalError, match="unexpected size for output 'y', byte-size 32 is less"):
        await response_of((await backend.execute([whole]))[0])
    answer = await response_of((await backend.execute([part]))[0])
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
    write_stretch(version / "model.plan")
    config = await completed_config(version)
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
    config = await completed_config(version)
    assert config.input[0].is_non_linear_format_io
    assert config.input[0].dims == (3, 2, 2)
    backend = await open_backend(config)
    images = np.arange(36, dtype=np.float16).reshape(3, 3, 2, 2)
    requests = [
        graphs.request(x=Tensor(DataType.FP16, part.shape, _in_fours(part).tobytes()))
        for part in (images[:1], images[1:])
    ]
    first, second = [await response_of(one) for one in await backend.execute(requests)]
    assert first.outputs["y"].numpy().shape == (1, 4, 2, 2)
    assert bytes(second.outputs["y"].buffer) == _in_fours(2 * images[1:]).tobytes()
    short = graphs.request(x=Tensor(DataType.FP16, (1, 3, 2, 2), bytes(24)))
    (refused,) = await backend.execute([short])
    assert "is filled up to multiples of 4. Expected 32, got 24" in str(refused)


async def test_a_filled_dimension_has_to_be_fixed(gpu: Any, version: Path) -> None:
    _write_channels(version / "model.plan", channels=-1)
    with pytest.raises(ModelLoadError, match="a format that fills up its dimension 1, which must"):
        await completed_config(version)


async def test_bfloat16_is_served_as_bits(open_backend: Open, version: Path) -> None:
    tensors = [
        tensor("x", -1, 2, dtype="BF16"),
        tensor("y", -1, 2, dtype="BF16", input=False),
    ]
    write(version / "model.plan", "bits", tensors, {"x": [[1, 2], [2, 2], [4, 2]]})
    x, y = ({"name": name, "data_type": "TYPE_BF16", "dims": [2]} for name in "xy")
    backend = await open_backend(plan_config(max_batch_size=4, input=[x], output=[y]))
    bits = Tensor.from_numpy(np.array([[0x3F80, 0xC000]], np.uint16), DataType.BF16)
    (outcome,) = await backend.execute([graphs.request(x=bits)])
    output = (await response_of(outcome)).outputs["y"]
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
    backend = await open_backend(plan_config(max_batch_size=0, input=[x_], output=[y]))
    (answer,) = await asked(backend, np.array(x, np.float32))
    assert answer.tolist() == np.flatnonzero(x).tolist()
    large = np.ones(16, np.float32)
    assert len((await asked(backend, large))[0]) == 16


async def test_memory_of_such_an_output_grows_while_there_is_some(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorrt

    monkeypatch.setattr(tensorrt.IExecutionContext, "get_max_output_size", lambda *_: 8)
    tensors = [tensor("x", -1), tensor("y", -1, dtype="INT64", input=False)]
    write(version / "model.plan", "nonzero", tensors, {"x": [[1], [4], [64]]})
    config = await completed_config(version)
    backend = await open_backend(config)
    for length in range(1, 33):
        (answer,) = await asked(backend, np.ones(length, np.float32))
        assert answer.tolist() == [*range(length)]
    assert sum(map(len, gpu.gpu.memory.values())) < 1024  # 256 of them for `x`
    gpu.gpu.most_bytes = 1024
    with pytest.raises(InternalError, match=r"unable to enqueue for inference m_0_0: .*no memory"):
        await asked(backend, np.ones(64, np.float32))
    (answer,) = await asked(backend, np.ones(2, np.float32))
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
    config = plan_config(max_batch_size=4, input=[ragged], output=[y], batch_input=[ends])
    backend = await open_backend(config)
    arrays = [np.ones((1, length), np.float32) for length in (1, 5, 3)]
    assert [one.tolist() for one in await asked(backend, *arrays)] == [[1], [5], [3]]


async def test_inputs_that_lie_side_by_side_are_not_joined(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    settings = {"coalesce-request-input": "true"}
    backend = await open_backend(plan_config(), settings=settings)
    whole = rows_of(6)
    for parts in ([whole[:2], whole[2:5], whole[5:]], [whole[3:], whole[:3]]):
        answers = await asked(backend, *parts)
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
    config = await completed_config(
        version, parameters={"penstock.tokenizer": {"string_value": "tokenizer.json"}}
    )
    assert [(one.name, one.dims) for one in config.input] == [("TEXT", (1,))]
    assert config.max_batch_size == 8
    backend = await open_backend(config, profiles=("0", "1"))
    texts = [["red"], [" ".join(["red"] * 40)]]
    requests = [graphs.request(TEXT=Tensor.from_strings(text, (1, 1))) for text in texts]
    found = [await response_of(one) for one in await backend.execute(requests)]
    assert [one.outputs["y"].numpy()[0, 1] for one in found] == [3, 42]  # with [CLS] and [SEP]
