"""Images that requests name by URL, for models that take them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.backend import InvalidRequestError, ModelConfig
from penstock_backends.language_model import PixelBudget, decode_image, fetch_media, media_limits

INPUT = "image_url"
MOST = 16
"""Images of one request."""


class ImageReader:
    """Fetches and decodes images off the event loop, within bounds."""

    def __init__(self, config: ModelConfig, settings: Mapping[str, str], enabled: bool) -> None:
        self._limits = media_limits(config, settings)
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
        budget = PixelBudget()
        return [await self._image(url, budget) for url in urls]

    async def _image(self, url: str, budget: PixelBudget) -> Any:
        content = await fetch_media(url, INPUT, self._limits)
        return await asyncio.to_thread(decode_image, content, INPUT, budget)
