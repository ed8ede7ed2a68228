"""Images of requests, with a stand-in for Pillow: fetched, decoded and given to the engine."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from backends.tensorrt_llm.asking import ask, llm, sampling, text
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance
from penstock_backends.tensorrt_llm import images

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@pytest.fixture(autouse=True)
def pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pillow whose images are texts of their sizes, such as `3x2`."""

    def load(file: BytesIO, formats: object) -> Any:
        width, height = file.read().split(b"x")
        size = int(width), int(height)
        return SimpleNamespace(size=size, format="PNG", convert=lambda mode: (mode, size))

    module: Any = ModuleType("PIL.Image")
    module.open, module.DecompressionBombError = load, MemoryError
    monkeypatch.setitem(sys.modules, "PIL", ModuleType("PIL"))
    monkeypatch.setitem(sys.modules, "PIL.Image", module)


@pytest.mark.contract("TL-03")
async def test_images_reach_the_engine(instance: RunningInstance) -> None:
    urls = ["data:,3x2", "data:,4x5"]
    (response,) = await ask(instance, image_url=urls, **sampling(max_tokens=1))
    assert text(response) == " w0"
    assert llm(instance).requests[-1].images == [("RGB", (3, 2)), ("RGB", (4, 5))]
    assert llm(instance).requests[-1].prompt == "hello"


@pytest.mark.parametrize(
    ("urls", "reason"),
    [
        (["data:,100000x10000"], "holds an image of 100000 x 10000 pixels; at most 100000000"),
        (["data:,10000x10000"] * 5, "holds images of more than 400000000 pixels, with others"),
        (["data:,what"], "does not hold an image"),
        (["data:,1x1"] * 17, "must hold at most 16 URLs"),
        (["http://127.0.0.1/"], "this server fetches nothing"),
    ],
)
async def test_images_are_bounded(instance: RunningInstance, urls: list[str], reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await ask(instance, image_url=urls)
    assert reason in refused.value.message
    assert refused.value.message.startswith("Error generating request: input 'image_url' ")
    assert text((await ask(instance, **sampling(max_tokens=1)))[0]) == " w0"


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """A fetch that never ends; the events say that it has begun, and that it was given up."""
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def fetch(*_: Any) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return b""

    monkeypatch.setattr(images, "fetch_media", fetch)
    return begun, given_up


async def test_a_client_that_leaves_meanwhile_ends_the_fetch(
    instance: RunningInstance, stuck: tuple[asyncio.Event, asyncio.Event]
) -> None:
    begun, given_up = stuck
    before = len(llm(instance).requests)
    asking = asyncio.create_task(ask(instance, image_url="http://example.com/"))
    async with asyncio.timeout(60):
        await begun.wait()
        asking.cancel()
        await given_up.wait()
    assert len(llm(instance).requests) == before
