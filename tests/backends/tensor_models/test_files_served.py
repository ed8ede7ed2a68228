"""Files of images and audio as clients of Triton's send them, to a server with two engines."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from tritonclient.utils import InferenceServerException

from backends.tensor_models import graphs
from backends.tensor_models.test_audio import FLOAT, sine, wav
from backends.tensor_models.test_images import encoded, picture
from harness.serving import Served, serving
from penstock.demo.colour_classifier import COLOURS, add_inception

pytestmark = pytest.mark.slow

_SCORES = "InceptionV3/Predictions/Softmax"
_CLASSIFIER = """
backend: "{backend}"
default_model_filename: "model.onnx"
max_batch_size: 16
dynamic_batching {{ max_queue_delay_microseconds: {delay} }}
{input}
output {{
  name: "InceptionV3/Predictions/Softmax" data_type: TYPE_FP32 dims: 9
  label_filename: "inception_labels.txt"
}}
"""
_FILES = """
input { name: "input" data_type: TYPE_STRING dims: 1 }
parameters { key: "penstock.image" value { string_value:
  '{"input": "input", "scale": 0.00784313725490196, "mean": 1, "resample": "bicubic"}' } }
"""
_TENSORS = 'input { name: "input" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 299, 299, 3 ] }'
_SOUNDS = """
backend: "onnxruntime"
parameters { key: "penstock.audio" value { string_value: '{"input": "x", "rate": 16000}' } }
"""
_TOWER = """
backend: "onnxruntime"
max_batch_size: 8
parameters { key: "penstock.image" value { string_value: '{"input": "pixel_values"}' } }
"""
_LIBRARIES = pytest.mark.parametrize("library", [grpcclient, httpclient], ids=["grpc", "http"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    models = tmp_path_factory.mktemp("models")
    for name, backend, inputs, delay in (
        ("files", "onnxruntime", _FILES, 0),
        ("late_files", "onnxruntime", _FILES, 300_000),
        ("openvino_files", "openvino", _FILES, 0),
        ("tensors", "onnxruntime", _TENSORS, 0),
    ):
        (models / name / "1").mkdir(parents=True)
        add_inception(models / name / "1")
        text = _CLASSIFIER.format(backend=backend, input=inputs, delay=delay)
        (models / name / "config.pbtxt").write_text(text)
    graphs.save_identity(models / "sounds" / "1" / "model.onnx", shape=("n", "t"))
    (models / "sounds" / "config.pbtxt").write_text(_SOUNDS)
    graphs.save_image_tower(models / "clip_image" / "1" / "model.onnx")
    (models / "clip_image" / "config.pbtxt").write_text(_TOWER)
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serving(models, log, "--allow-client-shm=true") as ready:
        yield ready


def coloured(colour: str, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """An image nearly of one colour."""
    levels = np.array(COLOURS[colour]) * 120 + 127
    noise = np.random.default_rng(0).integers(-7, 8, (size[1], size[0], 3))
    return Image.fromarray((levels + noise).clip(0, 255).astype(np.uint8))


def opened(library: Any, server: Served) -> Any:
    return library.InferenceServerClient(server.grpc if library is grpcclient else server.http)


def files(library: Any, name: str, *contents: bytes) -> list[Any]:
    array = np.array([[content] for content in contents], object)
    tensor = library.InferInput(name, array.shape, "BYTES")
    tensor.set_data_from_numpy(array)
    return [tensor]


def labels(result: Any) -> list[list[str]]:
    """The label of each class of each row."""
    return [[text.decode().split(":")[2] for text in row] for row in result.as_numpy(_SCORES)]


@pytest.mark.contract("X-01", "X-03", "X-04", "C-16", "GP-10", "HI-20")
@_LIBRARIES
@pytest.mark.parametrize("model", ["files", "openvino_files"])
def test_files_are_classified_with_labels(server: Served, library: Any, model: str) -> None:
    contents = [encoded(coloured("RED"), "JPEG"), encoded(coloured("BLUE", (9, 400)), "WEBP")]
    wanted = library.InferRequestedOutput(_SCORES, class_count=2)
    with opened(library, server) as client:
        given = files(library, "input", *contents, encoded(coloured("GREY")))
        found = labels(client.infer(model, given, outputs=[wanted]))
    assert [row[0] for row in found] == ["RED", "BLUE", "GREY"]
    assert [len(row) for row in found] == [2, 2, 2]


@_LIBRARIES
@pytest.mark.parametrize("model", ["files", "openvino_files"])
def test_a_file_gives_what_its_tensor_gives(server: Served, library: Any, model: str) -> None:
    """Pillow's, of a client that makes it itself."""
    content = encoded(picture(320, 200), "JPEG")
    image = Image.open(io.BytesIO(content)).resize((299, 299), Image.Resampling.BICUBIC)
    array = (np.asarray(image) / 127.5 - 1).astype(np.float32)[np.newaxis]
    tensor = library.InferInput("input", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    with opened(library, server) as client:
        expected = client.infer("tensors", [tensor]).as_numpy(_SCORES)
        found = client.infer(model, files(library, "input", content)).as_numpy(_SCORES)
    assert_allclose(found, expected, atol=1e-5)


@_LIBRARIES
def test_metadata_say_what_a_client_sends(server: Served, library: Any) -> None:
    with opened(library, server) as client:
        if library is grpcclient:
            (described,) = client.get_model_metadata("files", as_json=True)["inputs"]
            assert described["shape"] == ["-1", "1"]
        else:
            (described,) = client.get_model_metadata("files")["inputs"]
            assert described["shape"] == [-1, 1]
    assert described["datatype"] == "BYTES"


@pytest.mark.contract("CC-10", "C-09")
@_LIBRARIES
def test_image_clients_send_tensors_as_ever(server: Served, library: Any) -> None:
    """Triton's `image_client`: it reads format and size, and asks for classes."""
    with opened(library, server) as client:
        if library is grpcclient:
            config = client.get_model_config("tensors", as_json=True)["config"]
        else:
            config = client.get_model_config("tensors")
        (described,) = config["input"]
        assert described["format"] == "FORMAT_NHWC"
        height, width, _ = map(int, described["dims"])
        pixels = np.asarray(coloured("CYAN").resize((width, height)), np.float32)
        array = (pixels / 127.5 - 1)[np.newaxis]
        tensor = library.InferInput("input", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        wanted = library.InferRequestedOutput(_SCORES, class_count=3)
        (found,) = labels(client.infer("tensors", [tensor], outputs=[wanted]))
    assert found[0] == "CYAN"


def test_a_bad_file_leaves_its_batch_alone(server: Served) -> None:
    contents = [encoded(coloured(colour)) for colour in ("RED", "GREEN", "WHITE")]
    with opened(grpcclient, server) as client, ThreadPoolExecutor(4) as threads:

        def ask(content: bytes) -> Any:
            wanted = grpcclient.InferRequestedOutput(_SCORES, class_count=1)
            given = files(grpcclient, "input", content)
            return labels(client.infer("late_files", given, outputs=[wanted]))

        asked = [threads.submit(ask, content) for content in [*contents, b"no image"]]
        assert [one.result() for one in asked[:3]] == [[["RED"]], [["GREEN"]], [["WHITE"]]]
        with pytest.raises(InferenceServerException, match="formats JPEG, PNG, WEBP") as refused:
            asked[3].result()
        assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
        (counted,) = client.get_inference_statistics("late_files").model_stats
    assert counted.execution_count < 4
    assert (counted.inference_stats.success.count, counted.inference_stats.fail.count) == (3, 1)


@_LIBRARIES
def test_sounds_of_any_length_and_rate_are_samples(server: Served, library: Any) -> None:
    signal = sine(440, 16_000)
    with opened(library, server) as client:
        result = client.infer("sounds", files(library, "x", wav(signal, code=FLOAT)))
        assert_array_equal(result.as_numpy("y"), signal[np.newaxis])
        telephone = wav((sine(440, 8_000) * 32_767).astype("<i2"), 8_000)
        (found,) = client.infer("sounds", files(library, "x", telephone)).as_numpy("y")
    assert_allclose(found[200:-200], signal[200:-200], atol=1e-3)


def test_an_image_has_an_embedding_over_http(server: Served) -> None:
    content = encoded(picture(), "WEBP")
    url = f"data:image/webp;base64,{base64.b64encode(content).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "clip_image", "messages": [{"role": "user", "content": [part]}]}
    answer = httpx.post(f"http://{server.http}/v1/embeddings", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    with opened(grpcclient, server) as client:
        result = client.infer("clip_image", files(grpcclient, "pixel_values", content))
    assert_allclose(
        answer.json()["data"][0]["embedding"], result.as_numpy("image_embeds")[0], atol=1e-6
    )


@_LIBRARIES
def test_what_is_no_sound_is_refused_in_words(server: Served, library: Any) -> None:
    with (
        opened(library, server) as client,
        pytest.raises(InferenceServerException, match="'x' does not hold a WAV file: it does not"),
    ):
        client.infer("sounds", files(library, "x", b"ID3\4" + bytes(100)))
