"""Images, audio and video in a request."""

from __future__ import annotations

import asyncio
import base64
import inspect
import struct
import zlib
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.renderers import chat_utils

from backends.generation import plain, start
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.testing import RunningInstance
from penstock_backends.language_model import MediaLimits, StreamInterval
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.arguments.engine_args import MEDIA_CONNECTOR
from penstock_backends.vllm.inputs.media import limits_of, load_media, read_media
from penstock_backends.vllm.model_facts import ModelFacts
from penstock_backends.vllm.openai.media_connector import bound_media

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANY = {"image": None, "audio": None, "video": None}


def png(width: int = 3, height: int = 2, mode: str = "RGB", color: Any = 0) -> bytes:
    file = BytesIO()
    import_module("PIL.Image").new(mode, (width, height), color).save(file, "PNG")
    return file.getvalue()


def huge_png() -> bytes:
    """A file of a few bytes that says it has 10^9 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", 50_000, 20_000, 8, 2, 0, 0, 0)
    packed = zlib.compress(bytes(100))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def data_url(content: bytes) -> bytes:
    return b"data:image/png;base64," + base64.b64encode(content)


async def load(
    name: str, *elements: bytes, accepted: Any = ANY, decoded: int = 1 << 30
) -> dict[str, list[Any]]:
    request = InferenceRequest("m", inputs={name: Tensor.from_strings(elements)})
    return await load_media(read_media(request, accepted), MediaLimits(seconds=5, decoded=decoded))


async def test_images_are_read_as_rgb() -> None:
    text = base64.b64encode(png(mode="L"))
    images = (await load("image", text, text))["image"]
    assert [(image.mode, image.size) for image in images] == [("RGB", (3, 2))] * 2


async def test_no_media_are_nothing() -> None:
    assert read_media(InferenceRequest("m"), {}) == ()


@pytest.mark.parametrize(
    ("name", "element", "why"),
    [
        ("image", b"", "input 'image' does not hold an image"),
        ("image", b"?", "input 'image' does not hold an image"),
        ("image", base64.b64encode(b"no image"), "input 'image' does not hold an image"),
        ("image", base64.b64encode(huge_png()), r"50000 x 20000 pixels are more than|pixels"),
        ("image", b"http://example.com/a.png", "URLs go into input 'image_url'"),
        ("image_url", b"file:///etc/passwd", "must hold http:, https: or data: URLs"),
        ("image_url", b"/etc/passwd", "must hold http:, https: or data: URLs"),
        ("image_url", b"http://127.0.0.1:1/a.png", "which has no public address"),
        ("image_url", b"http://169.254.169.254/latest", "which has no public address"),
        ("image_url", data_url(huge_png()), "pixels"),
        ("image_url", b"\xff", "does not hold an image"),
        ("audio", b"file:///etc/passwd", "input 'audio' must hold http:, https: or data: URLs"),
        ("audio", base64.b64encode(b"noise"), "input 'audio' (does not hold|cannot be decoded)"),
        ("video", base64.b64encode(b"noise"), "input 'video' (does not hold|cannot be decoded)"),
    ],
)
async def test_anything_else_is_refused(name: str, element: bytes, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await load(name, element)


async def test_base64_is_bounded_before_it_is_decoded() -> None:
    """Of any input; what it says about Base64 shows that nobody has looked."""
    for name in ("image", "audio", "video"):
        with pytest.raises(InvalidRequestError, match=f"input '{name}' is larger than 33554432"):
            await load(name, b"?" * (45 << 20))


def movie(folder: Path, frames: int) -> bytes:
    cv2 = import_module("cv2")
    file = str(folder / "a.avi")
    writer = cv2.VideoWriter(file, cv2.VideoWriter.fourcc(*"MJPG"), 8, (64, 32))
    for _ in range(frames):
        writer.write(np.zeros((32, 64, 3), np.uint8))
    writer.release()
    return Path(file).read_bytes()


async def test_videos_of_a_request_have_so_many_bytes_together(tmp_path: Path) -> None:
    text = base64.b64encode(movie(tmp_path, 32))
    size = 32 * 32 * 64 * 3
    assert len((await load("video", text, text, decoded=2 * size))["video"]) == 2
    with pytest.raises(InvalidRequestError, match=f"video of more than {2 * size} bytes"):
        await load("video", *[text] * 3, decoded=2 * size)
    with pytest.raises(InvalidRequestError, match="32 frames of 64 x 32 pixels are too large"):
        await load("video", text, decoded=size - 1)


async def test_a_model_takes_so_many() -> None:
    with pytest.raises(InvalidRequestError, match="has 2 of modality image, and model m takes 1"):
        await load("image", b"", b"", accepted={"image": 1})


async def test_so_many_media_are_taken_whatever_the_model_takes() -> None:
    with pytest.raises(InvalidRequestError, match=r"has 65 images, .* at most 64 are taken"):
        await load("image", *[b""] * 65)


async def test_hosts_that_the_engine_is_told_hold_for_tensors_too() -> None:
    config = ModelConfig("m", parameters={"penstock.allowed_media_hosts": Parameter("inside")})
    limits = limits_of(config, {}, {"allowed_media_domains": ["A.example"]})
    assert limits.only_hosts == {"a.example"}
    assert limits.allowed_hosts == {"a.example", "inside"}
    assert limits_of(config, {"allow-media-urls": "true"}, {}).only_hosts == frozenset()


@pytest.fixture
def connector() -> Any:
    """What vLLM's own routes fetch media by."""
    bound_media(MediaLimits())
    sources = Path(inspect.getfile(chat_utils)).parent.rglob("*.py")
    assert any("envs.VLLM_MEDIA_CONNECTOR" in source.read_text() for source in sources)
    return MEDIA_CONNECTOR_REGISTRY.load(MEDIA_CONNECTOR)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/a.png", "input 'image_url' has the host .* no public address"),
        ("HTTP://169.254.169.254/latest", "which has no public address"),
        (" http://10.0.0.1/a.png", "must hold http:, https: or data: URLs|must be encoded"),
        ("ftp://example.com/a.png", "must hold http:, https: or data: URLs"),
        ("file:///etc/passwd", "files are not read"),
        ("FILE:///etc/passwd", "files are not read"),
    ],
)
async def test_vllms_own_routes_connect_to_public_addresses_only(
    connector: Any, url: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        await connector.fetch_image_async(url)
    with pytest.raises(ValueError, match=why):
        await asyncio.to_thread(connector.fetch_image, url)


async def test_vllms_own_routes_read_files_only_where_they_are_told(
    connector: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(png())
    told = MEDIA_CONNECTOR_REGISTRY.load(MEDIA_CONNECTOR, allowed_local_media_path=str(tmp_path))
    assert (await told.fetch_image_async(f"file://{tmp_path}/a.png")).size == (3, 2)
    with pytest.raises(ValueError, match="must be a subpath"):
        await told.fetch_image_async("file:///etc/passwd")
    image = await connector.fetch_image_async(data_url(png()).decode())
    assert image.size == (3, 2)


class Seeing:
    """An engine whose model takes one image; the real one needs torchvision for any that does."""

    logprobs = generates = True
    adapters = None
    facts = ModelFacts(modalities={"image": 1})

    def __init__(self) -> None:
        self.prompts: list[Any] = []

    def begin(self) -> None: ...

    async def acquire(self, _: None) -> None: ...

    def release(self, *_: None) -> None: ...

    async def rendered(self, prompt: Any) -> Any:
        self.prompts.append(prompt)
        return prompt

    async def add(self, *given: Any) -> None:
        completion = CompletionOutput(0, "red", [7], None, None, finish_reason="length")
        given[-1](RequestOutput("1", "", [1, 2], None, [completion], True))


@pytest.mark.contract("VL-05")
async def test_an_image_by_url_reaches_the_engine_as_one_in_base64() -> None:
    engine: Any = Seeing()
    made = VllmBackend()
    made._engine, made._media_limits, made._model = engine, MediaLimits(), "m"
    made._interval = StreamInterval()
    picture = png(32, 32, color=(255, 0, 0))
    for name, content in (("image", base64.b64encode(picture)), ("image_url", data_url(picture))):
        inputs = {
            "text_input": Tensor.from_strings(["What?"]),
            name: Tensor.from_strings([content]),
        }
        outcome: Any = made.generate(InferenceRequest("m", inputs=inputs))
        (response,) = [response async for response in outcome]
        assert plain(response) == {"text_output": ["What?red"]}
    (one,), (other,) = (prompt["multi_modal_data"]["image"] for prompt in engine.prompts)
    assert one.tobytes() == other.tobytes() == bytes([255, 0, 0]) * 32 * 32


@pytest.mark.parametrize(
    ("media", "why"),
    [
        ({"image": base64.b64encode(huge_png())}, "input 'image': model m takes no image"),
        ({"image_url": "http://127.0.0.1/"}, "input 'image_url': model m takes no image"),
        ({"audio": base64.b64encode(b"noise")}, "input 'audio': model m takes no audio"),
        ({"video": b"https://example.com"}, "input 'video': model m takes no video"),
    ],
)
async def test_a_model_that_takes_no_media_says_so(
    instance: RunningInstance, media: Any, why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        [response async for response in start(instance, inputs=media)]
    assert [response async for response in start(instance, max_tokens=2)]
