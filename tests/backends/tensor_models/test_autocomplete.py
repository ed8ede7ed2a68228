"""Autocompletion from the graph, and validation against it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto

from backends.tensor_models import graphs
from harness.outcomes import raises_nothing
from penstock.core.config import (
    ControlInput,
    DynamicBatching,
    ModelConfig,
    SequenceBatching,
    SequenceState,
    TensorReshape,
)
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
BARE = ModelConfig(name="bare", backend="onnxruntime")


async def _completed(config: ModelConfig, version: Path, **settings: str) -> ModelConfig:
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    return await OnnxRuntimeBackend.complete_config(config, version, given)


@pytest.mark.contract("AC-05", "AC-06")
async def test_everything_comes_from_a_graph_that_batches(version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    config = await _completed(BARE, version)
    expected = graphs.sums_config(4, dynamic_batching=DynamicBatching(), backend="onnxruntime")
    assert config == replace(expected, name="bare")


async def test_a_completed_configuration_can_be_served(open_backend: Open, version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    with raises_nothing():
        await open_backend(await _completed(BARE, version))


async def test_a_fixed_first_dimension_means_no_batching(version: Path) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.INT64, (3, "k"))
    config = await _completed(BARE, version)
    assert (config.max_batch_size, config.dynamic_batching) == (0, None)
    assert config.input == (graphs.tensor_in("x", DataType.INT64, 3, -1),)
    assert config.output == (graphs.tensor_out("y", DataType.INT64, 3, -1),)


async def test_one_tensor_that_does_not_batch_means_no_batching(version: Path) -> None:
    _save_mixed(version)
    config = await _completed(BARE, version)
    assert (config.max_batch_size, config.dynamic_batching) == (0, None)
    assert [tensor.dims for tensor in config.input] == [(-1, 2), (2,)]


@pytest.mark.contract("AC-06")
async def test_mixed_tensors_cannot_have_a_batch_size(version: Path) -> None:
    _save_mixed(version)
    text = (
        "autofill failed for model 'bare': model does not support batching while non-zero "
        r"max_batch_size is specified; its tensor 'b' has shape \[2\]"
    )
    with pytest.raises(ModelLoadError, match=text):
        await _completed(replace(BARE, max_batch_size=8), version)


def _save_mixed(version: Path) -> None:
    inputs = [
        graphs.value("x", TensorProto.FLOAT, ("n", 2)),
        graphs.value("b", TensorProto.FLOAT, (2,)),
    ]
    output = graphs.value("y", TensorProto.FLOAT, ("n", 2))
    graphs.save(version / "model.onnx", [graphs.node("Add", "xb", "y")], inputs, [output])


@pytest.mark.contract("AC-04")
@pytest.mark.parametrize(
    ("given", "setting", "expected", "dynamic"),
    [
        (0, "16", 16, True),
        (0, "1", 1, False),
        (0, "0", 0, False),
        (2, "16", 2, True),
        (1, "4", 1, False),
    ],
)
async def test_the_batch_size_is_the_given_or_the_default_one(
    version: Path, given: int, setting: str, expected: int, dynamic: bool
) -> None:
    graphs.save_identity(version / "model.onnx")
    config = replace(BARE, max_batch_size=given)
    config = await _completed(config, version, default_max_batch_size=setting)
    assert config.max_batch_size == expected
    assert (config.dynamic_batching is not None) == dynamic
    assert config.input[0].dims == ((2,) if expected else (-1, 2))


async def test_a_default_batch_size_that_is_not_a_number_is_refused(version: Path) -> None:
    graphs.save_identity(version / "model.onnx")
    with pytest.raises(ConfigError, match="default-max-batch-size"):
        await _completed(BARE, version, default_max_batch_size="few")


async def test_declared_tensors_are_kept(version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    declared = (graphs.tensor_out("sum", DataType.FP32, 2),)
    config = await _completed(replace(BARE, output=declared, max_batch_size=8), version)
    assert config.output == declared
    assert [tensor.name for tensor in config.input] == ["a", "b"]


async def test_a_tensor_declared_with_all_its_dims_leaves_no_batch(version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    declared = (graphs.tensor_out("sum", DataType.FP32, -1, 2),)
    config = await _completed(replace(BARE, output=declared), version)
    assert config.max_batch_size == 0
    assert config.input[0].dims == (-1, 2)


async def test_declared_inputs_and_outputs_need_no_file(version: Path) -> None:
    config = graphs.sums_config()
    assert await _completed(config, version) is config


async def test_one_number_per_row_gets_a_reshape(version: Path) -> None:
    graphs.save_identity(version / "model.onnx", shape=("n",))
    config = await _completed(BARE, version)
    assert config.input == (graphs.tensor_in("x", DataType.FP32, 1, reshape=TensorReshape()),)
    assert config.output == (graphs.tensor_out("y", DataType.FP32, 1, reshape=TensorReshape()),)


async def test_a_scalar_is_one_element(version: Path) -> None:
    graphs.save_identity(version / "model.onnx", shape=())
    config = await _completed(BARE, version)
    assert config.input == (graphs.tensor_in("x", DataType.FP32, 1),)


async def test_tensors_of_the_sequence_batcher_are_not_filled_in(
    open_backend: Open, version: Path
) -> None:
    graphs.save_sums(version / "model.onnx")
    sequences = SequenceBatching(
        control_input=(ControlInput("b"),), state=(SequenceState(output_name="difference"),)
    )
    config = await _completed(replace(BARE, sequence_batching=sequences), version)
    assert [tensor.name for tensor in config.input] == ["a"]
    assert [tensor.name for tensor in config.output] == ["sum"]
    assert config.dynamic_batching is None


async def test_a_text_encoder_gets_a_text_input(version: Path) -> None:
    graphs.save_encoder(version / "model.onnx")
    given = graphs.parameters(penstock__tokenizer="tokenizer.json")
    config = await _completed(replace(BARE, parameters=given), version)
    assert config.input == (graphs.tensor_in("TEXT", DataType.BYTES, 1),)
    assert config.output == (graphs.tensor_out("EMBEDDING", DataType.FP32, 8),)
    assert config.max_batch_size == 4


async def test_a_broken_file_is_reported(version: Path) -> None:
    (version / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ModelLoadError, match="failed to load model 'bare': onnx runtime error 7"):
        await _completed(BARE, version)


A, B = graphs.sums_config().input
SUM, DIFFERENCE = graphs.sums_config().output


@pytest.mark.contract("AC-06")
@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            replace(graphs.sums_config(), input=(A, replace(B, name="c"))),
            "unexpected inference input 'c' for model 'sums', allowed inputs are: a, b",
        ),
        (
            replace(graphs.sums_config(), output=(replace(SUM, name="total"),)),
            "unexpected inference output 'total' for model 'sums', "
            "allowed outputs are: sum, difference",
        ),
        (
            replace(graphs.sums_config(), input=(A,)),
            "unable to load model 'sums', configuration expects 1 inputs, model provides 2: "
            "not declared: b",
        ),
        (
            replace(graphs.sums_config(), input=(A, replace(B, data_type=DataType.INT32))),
            "unable to load model 'sums', configuration expects datatype TYPE_INT32 for input 'b', "
            "model provides TYPE_FP32",
        ),
        (
            replace(graphs.sums_config(), output=(replace(SUM, data_type=DataType.FP16),)),
            "expects datatype TYPE_FP16 for output 'sum', model provides TYPE_FP32",
        ),
        (
            replace(graphs.sums_config(), input=(A, replace(B, dims=(3,)))),
            r"model 'sums', tensor 'b': the model expects shape \[-1,2\] but the model "
            r"configuration specifies shape \[-1,3\], the first being the batch",
        ),
        (
            replace(graphs.sums_config(0), output=(SUM,)),
            r"tensor 'a': the model expects shape \[-1,2\] but the model configuration specifies "
            r"shape \[2\]",
        ),
    ],
)
async def test_contradictions_of_the_graph_are_refused(
    open_backend: Open, version: Path, config: ModelConfig, text: str
) -> None:
    graphs.save_sums(version / "model.onnx")
    with pytest.raises(ModelLoadError, match=text):
        await open_backend(config)


async def test_a_graph_with_a_fixed_batch_cannot_have_another(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx", shape=(1, 2))
    with pytest.raises(
        ModelLoadError, match=r"first dimension must be -1; but shape .* is \[1,2\]"
    ):
        await open_backend(graphs.identity_config(DataType.FP32, 2))


async def test_fewer_outputs_than_the_graph_has_may_be_declared(
    open_backend: Open, version: Path
) -> None:
    graphs.save_sums(version / "model.onnx")
    with raises_nothing():
        await open_backend(replace(graphs.sums_config(), output=(DIFFERENCE,)))
