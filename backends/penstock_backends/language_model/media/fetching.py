"""Media of requests, fetched by URL (`http`, `https`, `data`) within bounds."""

from __future__ import annotations

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from urllib.parse import unquote_to_bytes

from penstock_backends.language_model.media.bounds import (
    MediaLimits,
    media_refusal,
    media_too_large,
)
from penstock_backends.language_model.media.transfer import MediaTransfer

_AT_ONCE = 1 << 16
"""Characters of a data: URL that are decoded on the event loop."""
_PIECE = 1 << 18
"""Characters of Base64 that are decoded at a stretch: their decoder holds the GIL for 0.2 ms."""
_LONGEST_HEAD = 4096
"""Characters of a data: URL before its content."""
_THREADS = ThreadPoolExecutor(32, "media")
"""Threads of their own: slow servers must not keep others from the event loop's."""
MOST_OF_A_REQUEST = 4
"""Fetches at once of one request: it must not keep others from these threads."""


_FETCHES: ContextVar[asyncio.Semaphore | None] = ContextVar("media_fetches", default=None)
"""The fetches that one request may still begin, where they are limited."""


def limit_fetches() -> None:
    """Limit fetches to `MOST_OF_A_REQUEST` at once, in this task and those that it starts."""
    _FETCHES.set(asyncio.Semaphore(MOST_OF_A_REQUEST))


async def fetch_media(url: str, name: str, limits: MediaLimits) -> bytes:
    """The content behind the URL that input `name` holds; raises `InvalidRequestError`.

    An address that is not public, such as that of a neighbour of this machine, is not connected
    to. Cancelling ends the connection.
    """
    if url[:5].lower() == "data:":
        if len(url) <= _AT_ONCE:
            return _data(url, name, limits)
        return await asyncio.to_thread(_data, url, name, limits)
    async with _FETCHES.get() or nullcontext():
        transfer = MediaTransfer(name, limits)
        work = asyncio.get_running_loop().run_in_executor(_THREADS, transfer.run, url)
        try:
            async with asyncio.timeout(limits.seconds):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise transfer.too_slow() from error
        finally:
            if not work.done():
                transfer.abandon()
                work.add_done_callback(lambda done: done.cancelled() or done.exception())


def fetch_media_here(url: str, name: str, limits: MediaLimits) -> bytes:
    """As `fetch_media`, for the thread of a caller, which it blocks."""
    if url[:5].lower() == "data:":
        return _data(url, name, limits)
    transfer = MediaTransfer(name, limits)
    work = _THREADS.submit(transfer.run, url)
    try:
        return work.result(limits.seconds)
    except TimeoutError as error:
        raise transfer.too_slow() from error
    finally:
        transfer.abandon()


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
