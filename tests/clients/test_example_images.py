"""The image classifier of `penstock demo --examples`, asked as Triton's image clients ask it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from harness.serving import Served
from penstock.demo.colour_classifier import COLOURS

Image = pytest.importorskip("PIL.Image")

pytestmark = [pytest.mark.slow, pytest.mark.contract("CC-10")]

_ENSEMBLE = "preprocess_inception_ensemble"
_MODELS = [
    ("densenet_onnx", "data_0", "fc6_1"),
    ("inception_onnx", "input", "InceptionV3/Predictions/Softmax"),
]


def picture(colour: str, size: tuple[int, int] = (64, 48)) -> Any:
    """An image nearly of one colour."""
    levels = np.array(COLOURS[colour], np.float32) * 120 + 127
    noise = np.random.default_rng(0).integers(-7, 8, (size[1], size[0], 3))
    return Image.fromarray((levels + noise).clip(0, 255).astype(np.uint8))


def scaled(colour: str, model: str) -> np.ndarray:
    """What image clients make of an image with the option `-s INCEPTION`."""
    is_densenet = model == "densenet_onnx"
    side = 224 if is_densenet else 299
    pixels = np.asarray(picture(colour).resize((side, side)), np.float32) / 127.5 - 1
    return pixels.transpose(2, 0, 1) if is_densenet else pixels


def classes(result: Any, output: str) -> list[list[str]]:
    """Score, index and label of each class."""
    return [text.decode().split(":") for text in result.as_numpy(output).flat]


@pytest.mark.contract("B-07", "R-37")
@pytest.mark.parametrize("library", [grpcclient, httpclient], ids=["grpc", "http"])
@pytest.mark.parametrize(("model", "source", "output"), _MODELS)
def test_the_colour_is_the_first_class(
    server: Served, library: Any, model: str, source: str, output: str
) -> None:
    image = scaled("CYAN", model)[np.newaxis]
    tensor = library.InferInput(source, image.shape, "FP32")
    tensor.set_data_from_numpy(image)
    wanted = library.InferRequestedOutput(output, class_count=3)
    address = server.grpc if library is grpcclient else server.http
    with library.InferenceServerClient(address) as client:
        found = classes(client.infer(model, [tensor], outputs=[wanted]), output)
    assert found[0][1:] == [str(list(COLOURS).index("CYAN")), "CYAN"]
    assert len(found) == 3
    assert float(found[0][0]) > float(found[1][0])


@pytest.mark.contract("R-37")
@pytest.mark.parametrize(("model", "source", "output"), _MODELS)
def test_image_clients_find_what_they_check(
    server: Served, model: str, source: str, output: str
) -> None:
    """One input of three dimensions in a known format, one output that is a vector."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        config = client.get_model_config(model).config
        described = client.get_model_metadata(model)
    formats = model_config_pb2.ModelInput
    assert config.input[0].format in (formats.FORMAT_NCHW, formats.FORMAT_NHWC)
    assert [each.name for each in described.inputs] == [source]
    assert [each.name for each in described.outputs] == [output]
    assert len(described.inputs[0].shape) == 4
    assert list(described.outputs[0].shape) == [-1, len(COLOURS)]
    assert described.outputs[0].datatype == "FP32"


def files(*contents: bytes) -> Any:
    array = np.array([[file] for file in contents], object)
    tensor = grpcclient.InferInput("INPUT", array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return [tensor]


def encoded(colour: str, kind: str) -> bytes:
    file = io.BytesIO()
    picture(colour).save(file, kind)
    return file.getvalue()


def test_an_ensemble_takes_image_files(server: Served) -> None:
    """Of different formats, in one batch."""
    inputs = files(encoded("RED", "PNG"), encoded("GREY", "JPEG"), encoded("WHITE", "BMP"))
    wanted = grpcclient.InferRequestedOutput("OUTPUT", class_count=1)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        found = classes(client.infer(_ENSEMBLE, inputs, outputs=[wanted]), "OUTPUT")
    assert [label for _, _, label in found] == ["RED", "GREY", "WHITE"]


@pytest.mark.parametrize("file", [b"", b"no image", encoded("RED", "PNG")[:60]])
def test_what_is_no_image_is_refused_in_words(server: Served, file: bytes) -> None:
    with (
        grpcclient.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException, match="'INPUT' must hold image files") as refused,
    ):
        client.infer(_ENSEMBLE, files(file))
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
