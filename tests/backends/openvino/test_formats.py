"""One network in the formats of three engines, and TensorFlow's models."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from backends.conftest import OpenInstance
from backends.openvino import toys
from backends.tensor_models import graphs
from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.openvino import OpenVinoBackend
from penstock_backends.openvino.tensorflow import TensorFlowBackend

Open = Callable[..., Awaitable[OpenVinoBackend]]

GRAPHDEF = replace(
    toys.config(),
    backend="tensorflow",
    platform="tensorflow_graphdef",
    default_model_filename="model.graphdef",
)
SAVED = ModelConfig(
    name="pitch",
    backend="tensorflow",
    platform="tensorflow_savedmodel",
    default_model_filename="model.savedmodel",
)


def _copied(source: Path, target: Path) -> None:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


@pytest.mark.slow
@pytest.mark.contract("B-14", "B-15", "AC-13")
async def test_one_network_gives_one_answer_from_each_format(
    open_instance: OpenInstance, version: Path, basic_pitch: Path
) -> None:
    sound = np.random.default_rng(7).normal(0, 0.1, (2, 43844, 1)).astype(np.float32)

    async def answer(kind: type[Backend], source: str, name: str, batch: int) -> list[Any]:
        _copied(basic_pitch / source, version / name)
        bare = ModelConfig("pitch", default_model_filename=name, max_batch_size=batch)
        config = await kind.complete_config(bare, version, {})
        backend = await open_instance(kind, config)
        feed: dict[str, Any] = {config.input[0].name: sound}
        (outcome,) = await backend.execute([graphs.request(**feed)])
        outputs = [graphs.tensor(outcome, tensor.name).numpy() for tensor in config.output]
        return sorted(outputs, key=lambda array: (array.shape, float(array.sum())))

    answers = [
        await answer(OnnxRuntimeBackend, "nmp.onnx", "model.onnx", 4),
        await answer(OpenVinoBackend, "nmp.onnx", "same.onnx", 4),
        await answer(OpenVinoBackend, "nmp.tflite", "model.tflite", 4),
        await answer(OpenVinoBackend, "nmp", "saved", 4),
        await answer(TensorFlowBackend, "nmp", "model.savedmodel", 0),
    ]
    for others, most in ((answers[2:], 2e-6), (answers[:1], 1e-5)):
        for other in others:
            for one, two in zip(answers[1], other, strict=True):
                assert_allclose(one, two, rtol=0, atol=most)


@pytest.mark.contract("AC-13")
async def test_a_signature_completes_the_configuration(version: Path, basic_pitch: Path) -> None:
    _copied(basic_pitch / "nmp", version / "model.savedmodel")
    completed = await TensorFlowBackend.complete_config(SAVED, version, {})
    assert completed.max_batch_size == 4
    assert completed.input == (graphs.tensor_in("input_2", DataType.FP32, 43844, 1),)
    assert [(t.name, t.dims) for t in completed.output] == [
        ("contour", (172, 264)),
        ("note", (172, 88)),
        ("onset", (172, 88)),
    ]


@pytest.mark.contract("B-15")
async def test_a_graphdef_has_names_without_numbers(
    open_instance: OpenInstance, version: Path
) -> None:
    toys.save_graphdef(version / "model.graphdef")
    backend = await open_instance(TensorFlowBackend, GRAPHDEF)
    (outcome,) = await backend.execute([graphs.request(x=np.ones((3, 2), np.float32))])
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), np.full((3, 2), 2, np.float32))


@pytest.mark.contract("AC-13")
async def test_a_graphdef_completes_nothing(version: Path) -> None:
    toys.save_graphdef(version / "model.graphdef")
    bare = replace(GRAPHDEF, input=(), output=())
    assert await TensorFlowBackend.complete_config(bare, version, {}) == bare


@pytest.mark.contract("AC-13")
async def test_a_signature_without_a_batch_is_not_given_one(version: Path) -> None:
    toys.save_double(version / "model.xml", (1, 2))
    config = ModelConfig("m", default_model_filename="model.xml", max_batch_size=2)
    with pytest.raises(ModelLoadError) as refused:
        await TensorFlowBackend.complete_config(config, version, {})
    assert refused.value.message == (
        "unable to autofill for 'm', configuration specified max-batch 2 but model signature does"
        " not support batching"
    )


@pytest.mark.contract("B-15")
@pytest.mark.parametrize(
    ("operator", "kind", "text"),
    [
        ("StringLower", "DT_STRING", "No conversion rule found for operations: StringLower"),
        ("NoSuchOperator", "DT_FLOAT", "NoSuchOperator"),
    ],
)
async def test_what_only_tensorflow_can_run_is_refused_with_the_way_to_it(
    open_instance: OpenInstance, version: Path, operator: str, kind: str, text: str
) -> None:
    toys.save_graphdef(version / "model.graphdef", operator, kind)
    with pytest.raises(ModelLoadError, match=f"{text}.*pip install tensorflow-cpu"):
        await open_instance(TensorFlowBackend, GRAPHDEF)


@pytest.mark.contract("B-15")
@pytest.mark.parametrize(
    ("name", "value"),
    [("TF_SIGNATURE_DEF", "other"), ("TF_GRAPH_TAG", "train"), ("TF_INIT_OPS_FILE", "init.json")],
)
def test_what_cannot_be_chosen_is_refused(name: str, value: str) -> None:
    config = replace(GRAPHDEF, parameters=graphs.parameters(**{name: value}))
    with pytest.raises(ConfigError, match=f"'{name}'.*pip install tensorflow-cpu"):
        TensorFlowBackend.check_config(config)


@pytest.mark.contract("B-15")
def test_threads_are_those_of_tensorflows_parameter() -> None:
    given = graphs.parameters(
        TF_NUM_INTRA_THREADS="3", TF_NUM_INTER_THREADS="2", TF_SIGNATURE_DEF="serving_default"
    )
    config = replace(GRAPHDEF, parameters=given)
    TensorFlowBackend.check_config(config)
    assert TensorFlowBackend.settings(config).properties["INFERENCE_NUM_THREADS"] == "3"


def test_a_number_of_threads_is_a_number() -> None:
    config = replace(GRAPHDEF, parameters=graphs.parameters(TF_NUM_INTER_THREADS="few"))
    with pytest.raises(ConfigError, match="'TF_NUM_INTER_THREADS' must be a whole number"):
        TensorFlowBackend.check_config(config)


async def test_a_savedmodel_that_cannot_be_completed_says_the_way_out(version: Path) -> None:
    (version / "model.savedmodel").mkdir()
    with pytest.raises(ModelLoadError, match=r"'pitch': openvino error.*pip install tensorflow"):
        await TensorFlowBackend.complete_config(SAVED, version, {})


async def test_a_truncated_savedmodel_is_refused(
    open_instance: OpenInstance, version: Path, basic_pitch: Path
) -> None:
    _copied(basic_pitch / "nmp", version / "model.savedmodel")
    file = version / "model.savedmodel" / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:1000])
    config = replace(GRAPHDEF, default_model_filename="model.savedmodel")
    with pytest.raises(ModelLoadError, match="failed to load model 'double'"):
        await open_instance(TensorFlowBackend, config)


# -- what all tensor models share, on this engine --------------------------------------------------


async def test_text_encoders_run_on_it(open_backend: Open, version: Path) -> None:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    texts = ["red", "red green blue red green blue red", "green"]
    config = graphs.text_config(default_model_filename="model.onnx")
    backend = await open_backend(config)
    requests = [graphs.request(TEXT=np.array([[t.encode()]], np.object_)) for t in texts]
    together = [graphs.tensor(o, "EMBEDDING").numpy() for o in await backend.execute(requests)]
    for request, vector in zip(requests, together, strict=True):
        (alone,) = await backend.execute([request])
        assert_allclose(graphs.tensor(alone, "EMBEDDING").numpy(), vector, atol=1e-6)
