"""OpenAI's embeddings of images, in the form of vLLM, by the exchanges of a server.

The encoder has the form of CLIP's image tower, and random weights.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from backends.exchanging import application, begin, whole
from backends.tensor_models import graphs
from backends.tensor_models.test_images import encoded, picture
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


def config(**given: str) -> ModelConfig:
    image = {"penstock__image": '{"input": "pixel_values", "resize": 32}'}
    return ModelConfig(
        name="clip_image",
        backend="onnxruntime",
        max_batch_size=8,
        input=(graphs.tensor_in("pixel_values", DataType.BYTES, 1),),
        output=(graphs.tensor_out("image_embeds", DataType.FP32, 16),),
        parameters=graphs.parameters(**image, **given),
    )


def messages(*contents: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": "clip_image",
        "messages": [{"role": "user", "content": content} for content in contents],
        **fields,
    }


def image(content: bytes, kind: str = "jpeg") -> dict[str, Any]:
    url = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


CAT = encoded(picture(), "JPEG")


async def asked(backend: OnnxRuntimeBackend, body: Any) -> tuple[int, Any]:
    async with application(backend) as app:
        status, text = await whole(begin(app, "/v1/embeddings", body))
        return status, json.loads(text)


@pytest.fixture
def version_of_tower(version: Path) -> Path:
    graphs.save_image_tower(version / "model.onnx")
    return version


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_the_embedding_of_an_image_is_the_models_vector(
    open_backend: Open, version_of_tower: Path, form: str
) -> None:
    backend = await open_backend(config())
    file = Tensor.from_strings([CAT], (1, 1))
    (outcome,) = await backend.execute([graphs.request(pixel_values=file)])
    body = messages([image(CAT), {"type": "text", "text": ""}], encoding_format=form)
    status, answer = await asked(backend, body)
    assert status == 200
    (found,) = answer["data"]
    vector = found["embedding"]
    if form == "base64":
        vector = np.frombuffer(base64.b64decode(vector), "<f4")
    assert_allclose(vector, graphs.tensor(outcome, "image_embeds").numpy()[0], atol=1e-6)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert (answer["model"], answer["usage"]["prompt_tokens"]) == ("clip_image", 0)


async def test_dimensions_are_for_models_that_know_them(
    open_backend: Open, version_of_tower: Path
) -> None:
    body = messages([image(CAT)], dimensions=4)
    status, answer = await asked(await open_backend(config()), body)
    assert (status, answer["error"]["param"]) == (400, "dimensions")
    _, answer = await asked(await open_backend(config(penstock__matryoshka="true")), body)
    assert len(answer["data"][0]["embedding"]) == 4


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        ({"model": "m", "input": "red"}, "input", "send it in 'messages', not in 'input'"),
        (messages(), "messages", "must hold one image, not 0"),
        (messages("a cat"), "messages", "messages[0].content[0]: this model takes images"),
        (messages([image(CAT)] * 2), "messages", "must hold one image, not 2"),
        (messages([image(CAT)], [image(CAT)]), "messages", "must hold one image, not 2"),
        (messages([{"type": "text", "text": "cat"}]), "messages", "this model takes images"),
        (messages([{"type": "image_url"}]), "messages", "this model takes images"),
        (messages([image(b"GIF89a")]), None, "formats JPEG, PNG, WEBP"),
        (messages([{"type": "image_url", "image_url": "data:image/png;base64,?"}]), None, "Base64"),
        (messages([{"type": "image_url", "image_url": "http://a/b"}]), None, "fetches nothing"),
        (messages([image(CAT)], encoding_format="hex"), "encoding_format", "encoding_format"),
        (messages([image(CAT)], colour=1), "colour", "unknown field 'colour'"),
    ],
)
async def test_what_is_no_image_is_refused(
    open_backend: Open, version_of_tower: Path, body: Any, param: str | None, text: str
) -> None:
    status, answer = await asked(await open_backend(config()), body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert text in answer["error"]["message"]


async def test_a_classifier_has_no_embeddings(open_backend: Open, version_of_tower: Path) -> None:
    """What has labels are the scores of classes."""
    labelled = replace(config().output[0], label_filename="labels.txt")
    backend = await open_backend(replace(config(), output=(labelled,)))
    async with application(backend) as app:
        with pytest.raises(InvalidRequestError, match="no OpenAI routes"):
            await whole(begin(app, "/v1/embeddings", {}))
