"""One network in the formats of three engines."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from backends.conftest import OpenInstance
from backends.tensor_models import graphs
from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.openvino import OpenVinoBackend
from penstock_backends.tensorflow.on_openvino import OpenVinoTensorFlowBackend

Open = Callable[..., Awaitable[OpenVinoBackend]]


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
        await answer(OpenVinoTensorFlowBackend, "nmp", "model.savedmodel", 0),
    ]
    for others, most in ((answers[2:], 2e-6), (answers[:1], 1e-5)):
        for other in others:
            for one, two in zip(answers[1], other, strict=True):
                assert_allclose(one, two, rtol=0, atol=most)


@pytest.mark.slow
async def test_a_request_that_fails_spoils_none_of_its_shape_before(
    open_instance: OpenInstance, version: Path, basic_pitch: Path
) -> None:
    """An empty batch, with which this network ends in the middle of a run, twice."""
    _copied(basic_pitch / "nmp.tflite", version / "model.tflite")
    bare = ModelConfig("pitch", default_model_filename="model.tflite")
    config = await OpenVinoBackend.complete_config(bare, version, {})
    backend = await open_instance(OpenVinoBackend, config)
    (given,), output = config.input, config.output[0].name

    async def ask(rows: int) -> Any:
        feed: dict[str, Any] = {given.name: np.full((rows, 43844, 1), 0.1, np.float32)}
        (outcome,) = await backend.execute([graphs.request(**feed)])
        return outcome

    first = graphs.tensor(await ask(2), output).numpy()
    for _ in range(2):
        for _ in range(2):
            assert "openvino error in running inference" in (await ask(0)).message
        assert_allclose(graphs.tensor(await ask(2), output).numpy(), first)
        assert_allclose(graphs.tensor(await ask(1), output).numpy(), first[:1], atol=1e-6)


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
