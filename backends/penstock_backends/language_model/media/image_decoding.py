"""Images of requests, decoded within bounds of formats, pixels and time."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from penstock.backend import InvalidRequestError
from penstock_backends.language_model.media.bounds import media_refusal

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats that are decoded. Pillow reads more, with less care, some by programs that it runs."""

MOST_PIXELS: Final = 100_000_000
"""Pixels of one image: as RGB these are 300 MB."""

_MOST_AT_ONCE: Final = {"WEBP": 50_000_000, "TIFF": 50_000_000}
"""Pixels of formats whose decoders read everything at once, so that no time ends them."""

MOST_PIXELS_TOGETHER: Final = 400_000_000
"""Pixels of all images of one request."""

SECONDS: Final = 10.0
"""Seconds that the decoding of one image may take: JPEG may go over its pixels again and again."""

_PIECE: Final = 1 << 12
"""Bytes that decoders read at a stretch; between two of them the time is looked at."""


class PixelBudget:
    """The pixels that the images of one request may have together. For several threads."""

    def __init__(self, most: int = MOST_PIXELS_TOGETHER) -> None:
        self._most = self._left = most
        self._lock = threading.Lock()

    def take(self, pixels: int, name: str) -> None:
        """Take those of one more image, of input `name`; raises `InvalidRequestError`."""
        with self._lock:
            self._left -= pixels
            if self._left < 0:
                raise media_refusal(
                    name,
                    f"holds images of more than {self._most} pixels, with others together",
                )


class _TimedContent(BytesIO):
    """A file that can be read for some seconds: the decoder that reads it ends with them."""

    def __init__(self, content: bytes, seconds: float) -> None:
        super().__init__(content)
        self._end = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() > self._end:
            raise TimeoutError
        return super().read(size)


def decode_image(content: bytes, name: str, budget: PixelBudget, seconds: float = SECONDS) -> Any:
    """The image as RGB, of one of `FORMATS`; raises `InvalidRequestError`.

    `name` is the input that it was in, `budget` that of its request. For threads: it takes a while.
    """
    with opened_image(content, name, seconds=seconds) as image:
        width, height = image.size
        budget.take(width * height, name)
        return image.convert("RGB")


@contextmanager
def opened_image(
    content: bytes,
    name: str,
    formats: Sequence[str] = FORMATS,
    most: int = MOST_PIXELS,
    seconds: float = SECONDS,
) -> Iterator[Any]:
    """The image of input `name`, not decoded yet: a file says before how many pixels it has.

    Raises `InvalidRequestError`, also for what is wrong where it is decoded, in the block.
    """
    try:
        yield _opened(_TimedContent(content, seconds), name, formats, most)
    except InvalidRequestError:
        raise
    except ImportError as error:
        raise media_refusal(name, f"cannot be decoded where the engine runs: {error}") from error
    except TimeoutError as error:
        text = f"holds an image that takes longer than {seconds:g} s to decode"
        raise media_refusal(name, text) from error
    except Exception as error:  # of decoders, of any kind
        reason = str(error).partition(" <")[0]  # without the file, which is an object here
        text = f"does not hold an image of the formats {', '.join(formats)}: {reason}"
        raise media_refusal(name, text) from error


@cache
def _quieten() -> None:
    """Leave out Pillow's warning of large images: bounds are checked here, and Python keeps each
    text of a warning for ever, of which senders could make as many as they like."""
    warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")


def _opened(file: BytesIO, name: str, formats: Sequence[str], most: int) -> Any:
    _quieten()
    image = import_module("PIL.Image").open(file, formats=formats)
    most = min(most, _MOST_AT_ONCE.get(image.format, most))
    width, height = image.size
    if width * height > most:
        raise media_refusal(
            name, f"holds an image of {width} x {height} pixels; at most {most} are allowed"
        )
    image.decodermaxblock = _PIECE
    return image


def keep_image_formats() -> None:
    """Have Pillow open no other formats in this process: engines open images as well.

    Formats are refused, not removed: who names one that Pillow does not know gets a `KeyError` from
    Pillow, and vLLM names them all.
    """
    images = import_module("PIL.Image")
    images.init()
    for one in [each for each in images.OPEN if each not in FORMATS]:
        images.register_open(one, images.OPEN[one][0], _refuse)


def _refuse(prefix: bytes) -> bool:
    return False
