"""Media of requests, fetched by URL (`http`, `https`, `data`) and decoded, within bounds."""

from __future__ import annotations

import asyncio
import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from penstock.backend import InvalidRequestError
from penstock_backends.language_model.media_bounds import (
    MediaLimits,
    media_refusal,
    media_too_large,
)
from penstock_backends.language_model.media_transfer import MediaTransfer

MOST_PIXELS = 100_000_000
"""Pixels of one image: as RGB these are 300 MB."""

MOST_PIXELS_TOGETHER = 400_000_000
"""Pixels of all images of one request."""

_AT_ONCE = 1 << 16
"""Characters of a data: URL that are decoded on the event loop."""
_PIECE = 1 << 18
"""Characters of Base64 that are decoded at a stretch: their decoder holds the GIL for 0.2 ms."""
_LONGEST_HEAD = 4096
"""Characters of a data: URL before its content."""
_THREADS = ThreadPoolExecutor(32, "media")
"""Threads of their own: slow servers must not keep others from the event loop's."""


class PixelBudget:
    """The pixels that the images of one request may have together. For several threads."""

    def __init__(self) -> None:
        self._left = MOST_PIXELS_TOGETHER
        self._lock = threading.Lock()

    def take(self, pixels: int, name: str) -> None:
        """Take those of one more image, of input `name`; raises `InvalidRequestError`."""
        with self._lock:
            self._left -= pixels
            if self._left < 0:
                raise media_refusal(
                    name,
                    f"holds images of more than {MOST_PIXELS_TOGETHER} pixels, "
                    "with others together",
                )


async def fetch_media(url: str, name: str, limits: MediaLimits) -> bytes:
    """The content behind the URL that input `name` holds; raises `InvalidRequestError`.

    An address that is not public, such as that of a neighbour of this machine, is not connected
    to. Cancelling ends the connection.
    """
    if url[:5].lower() == "data:":
        if len(url) <= _AT_ONCE:
            return _data(url, name, limits)
        return await asyncio.to_thread(_data, url, name, limits)
    transfer = MediaTransfer(name, limits)
    work = asyncio.get_running_loop().run_in_executor(_THREADS, transfer.run, url)
    try:
        return await asyncio.wait_for(asyncio.shield(work), limits.seconds)
    except TimeoutError as error:
        raise media_refusal(name, f"takes longer than {limits.seconds:g} s") from error
    finally:
        if not work.done():
            transfer.abandon()
            work.add_done_callback(lambda done: done.cancelled() or done.exception())


def fetch_media_here(url: str, name: str, limits: MediaLimits) -> bytes:
    """As `fetch_media`, on the thread of the caller, which it blocks."""
    if url[:5].lower() == "data:":
        return _data(url, name, limits)
    return MediaTransfer(name, limits).run(url)


def check_encoded_size(size: int, name: str, limits: MediaLimits) -> None:
    """Refuse, before anything is decoded, Base64 or a URL of `size` bytes that is too large."""
    if size > limits.size * 4 // 3 + _LONGEST_HEAD:
        raise media_too_large(name, limits)


def decode_base64(text: bytes | str, name: str, limits: MediaLimits) -> bytes:
    """The content of input `name`; other threads have their turns while it is decoded.

    Raises `InvalidRequestError` for more than the limit, `ValueError` for what is not Base64.
    """
    check_encoded_size(len(text), name, limits)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    decoded = [base64.b64decode(piece, validate=True) for piece in pieces]
    if any(len(one) < _PIECE // 4 * 3 for one in decoded[:-1]):
        raise ValueError("padding before the end")
    content = b"".join(decoded)
    if len(content) > limits.size:
        raise media_too_large(name, limits)
    return content


def decode_image(content: bytes, name: str, budget: PixelBudget) -> Any:
    """The image as RGB, of any format that Pillow reads; raises `InvalidRequestError`.

    `name` is the input that it was in, `budget` that of its request. A file says how large it is
    before it is decoded. For threads: it takes a while.
    """
    try:
        image = import_module("PIL.Image").open(BytesIO(content))
        width, height = image.size
        if width * height <= MOST_PIXELS:
            budget.take(width * height, name)
            return image.convert("RGB")
    except InvalidRequestError:
        raise
    except ImportError as error:
        raise media_refusal(name, f"cannot be decoded where the engine runs: {error}") from error
    except Exception as error:  # of decoders, of any kind
        raise media_refusal(name, f"does not hold an image: {error}") from error
    raise media_refusal(
        name,
        f"holds an image of {width} x {height} pixels; at most {MOST_PIXELS} are allowed",
    )


def _data(url: str, name: str, limits: MediaLimits) -> bytes:
    head, comma, text = url.partition(",")
    if not comma:
        raise media_refusal(name, "is a data: URL without a comma")
    check_encoded_size(len(text), name, limits)
    if head.lower().endswith(";base64"):
        try:
            return decode_base64(text, name, limits)
        except ValueError as error:
            raise media_refusal(name, f"is not Base64: {error}") from error
    content = unquote_to_bytes(text)
    if len(content) > limits.size:
        raise media_too_large(name, limits)
    return content
