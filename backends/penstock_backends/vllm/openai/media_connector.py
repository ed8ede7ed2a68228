"""Media of requests to vLLM's own routes, fetched within the bounds of those of tensors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from penstock.backend import InvalidRequestError, UnsupportedError
from penstock_backends.language_model import MediaLimits, fetch_media, fetch_media_here
from penstock_backends.vllm.arguments.engine_args import MEDIA_CONNECTOR

_OTHERS = ("data:", "file:")
"""Schemes that vLLM reads itself: the second from `allowed_local_media_path` only."""


def bound_media(limits: MediaLimits) -> None:
    """Give vLLM the connector that its environment names, unless the operator chose one of its own.

    vLLM's would also connect to neighbours of this machine. Raises `UnsupportedError` for a vLLM
    that has none to choose.
    """
    try:
        from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY, MediaConnector
    except ImportError as error:
        raise UnsupportedError("vLLM has no connectors for media to choose from") from error

    MEDIA_CONNECTOR_REGISTRY.register(MEDIA_CONNECTOR)(_bounded(MediaConnector, limits))


def _bounded(connector: Any, limits: MediaLimits) -> Any:
    """vLLM's class of connectors with a fetch of our own."""

    class BoundedConnector(connector):  # type: ignore[misc, unused-ignore]
        def load_from_url(
            self, url: str, media_io: Any, *, fetch_timeout: int | None = None
        ) -> Any:
            if _is_other(url, files=self.allowed_local_media_path is not None):
                return super().load_from_url(url, media_io, fetch_timeout=fetch_timeout)
            bounds = _bounds(limits, media_io, fetch_timeout)
            try:
                content = fetch_media_here(url, _field(media_io), bounds)
            except InvalidRequestError as error:
                raise ValueError(error.message) from error
            return media_io.load_bytes(content)

        async def load_from_url_async(
            self, url: str, media_io: Any, *, fetch_timeout: int | None = None
        ) -> Any:
            if _is_other(url, files=self.allowed_local_media_path is not None):
                read = super().load_from_url_async(url, media_io, fetch_timeout=fetch_timeout)
                return await read
            bounds = _bounds(limits, media_io, fetch_timeout)
            try:
                content = await fetch_media(url, _field(media_io), bounds)
            except InvalidRequestError as error:  # its application answers with this class
                raise ValueError(error.message) from error
            return await asyncio.to_thread(media_io.load_bytes, content)

    return BoundedConnector


def _is_other(url: str, *, files: bool) -> bool:
    """Whether vLLM reads it itself; raises `ValueError` for a file, which to vLLM is a fault."""
    scheme = url[:5].lower()
    if scheme == "file:" and not files:
        raise ValueError("files are not read: the model has no 'allowed_local_media_path'")
    return scheme in _OTHERS


def _bounds(limits: MediaLimits, media_io: Any, seconds: float | None) -> MediaLimits:
    """The limits, with those that vLLM has for the medium."""
    size = media_io.get_max_bytes() or limits.size
    return replace(limits, size=size, seconds=seconds or limits.seconds)


def _field(media_io: Any) -> str:
    """The field of a message that holds the medium."""
    return f"{type(media_io).__name__.removesuffix('MediaIO').lower()}_url"
