"""Images that requests name by URL, for models that take them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

from penstock.backend import InvalidRequestError, ModelConfig
from penstock_backends.language_model import fetch_media, media_limits

INPUT = "image_url"
MOST = 16
"""Images of one request."""

PIXELS = 64_000_000
"""Pixels of one image: as RGB these are 192 MB."""


class ImageReader:
    """Fetches and decodes images off the event loop, within bounds."""

    def __init__(self, config: ModelConfig, enabled: bool) -> None:
        self._limits = media_limits(config)
        self._enabled = enabled

    def check(self, urls: Sequence[str]) -> None:
        """Refuse images where the model takes none, or takes fewer."""
        if urls and not self._enabled:
            raise InvalidRequestError(
                f"input '{INPUT}' is for models that take images: "
                "'multimodal: true' under 'triton_config' in model.yaml says so"
            )
        if len(urls) > MOST:
            raise InvalidRequestError(f"input '{INPUT}' must hold at most {MOST} URLs")

    async def read(self, urls: Sequence[str]) -> list[Any]:
        """The images, as RGB."""
        return [await self._image(url) for url in urls]

    async def _image(self, url: str) -> Any:
        content = await fetch_media(url, INPUT, self._limits)
        return await asyncio.to_thread(decode_image, content)


def decode_image(content: bytes) -> Any:
    """The image as RGB, of any format that Pillow reads; too large a one by its header's word."""
    pillow = import_module("PIL.Image")
    try:
        image = pillow.open(BytesIO(content))
        width, height = image.size
        if width * height > PIXELS:
            raise InvalidRequestError(
                f"input '{INPUT}' holds an image of {width} x {height} pixels; "
                f"at most {PIXELS} are allowed"
            )
        return image.convert("RGB")
    except (ValueError, OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise InvalidRequestError(f"input '{INPUT}' does not hold an image: {error}") from error
