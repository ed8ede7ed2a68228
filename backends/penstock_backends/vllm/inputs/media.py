"""Images, audio and video of a request (VL-05): fetched, and decoded on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from typing import Any, Final, NamedTuple

from penstock.backend import InferenceRequest, InvalidRequestError, ModelConfig
from penstock_backends.language_model import (
    MediaLimits,
    PixelBudget,
    check_encoded_size,
    decode_base64,
    decode_image,
    fetch_media,
    limit_fetches,
    media_limits,
)
from penstock_backends.vllm.tasks import results_of

_MODALITIES: Final = {"image": "image", "image_url": "image", "audio": "audio", "video": "video"}
"""The kind of media in each input."""

_FRAMES: Final = 32
"""Frames that are taken from a video, as vLLM's own default."""
_CHANNELS: Final = 3

_MOST: Final = 64
"""Media of one request, whatever the engine would take; each may have 32 MiB before decoding."""


class Medium(NamedTuple):
    """One image, piece of audio or video, in Base64 or as URL; `input` is where it was."""

    modality: str
    input: str
    content: bytes


def limits_of(
    config: ModelConfig, settings: Mapping[str, str], arguments: Mapping[str, Any]
) -> MediaLimits:
    """The limits of a model, with the `allowed_media_domains` among its engine's `arguments`."""
    given = arguments.get("allowed_media_domains")
    domains = (str(one).lower() for one in given) if isinstance(given, list) else ()
    return media_limits(config, settings, frozenset(domains))


def read_media(request: InferenceRequest, accepted: Mapping[str, int | None]) -> tuple[Medium, ...]:
    """The media of a request, not yet fetched; raises `InvalidRequestError`.

    `accepted` has the modalities that the model takes, and how many of each in a prompt.
    """
    found: list[Medium] = []
    for name, modality in _MODALITIES.items():
        tensor = request.inputs.get(name)
        if tensor is None:
            continue
        if modality not in accepted:
            raise InvalidRequestError(
                f"input '{name}': model {request.model_name} takes no {modality}"
            )
        found += [Medium(modality, name, element) for element in tensor.elements()]
    for modality, most in accepted.items():
        count = sum(medium.modality == modality for medium in found)
        if most is not None and count > most:
            raise InvalidRequestError(
                f"the request has {count} of modality {modality}, and model {request.model_name} "
                f"takes {most} in a prompt"
            )
    if len(found) > _MOST:
        raise InvalidRequestError(
            f"the request has {len(found)} images, pieces of audio and videos; "
            f"at most {_MOST} are taken"
        )
    return tuple(found)


async def load_media(media: Sequence[Medium], limits: MediaLimits) -> dict[str, list[Any]]:
    """The decoded media by modality, as vLLM takes them; raises `InvalidRequestError`."""
    budget, sizes = PixelBudget(), list[int]()
    limit_fetches()
    loaded = await results_of(_load(medium, limits, budget, sizes) for medium in media)
    by_modality: dict[str, list[Any]] = {}
    for medium, one in zip(media, loaded, strict=True):
        by_modality.setdefault(medium.modality, []).append(one)
    return by_modality


async def _load(medium: Medium, limits: MediaLimits, budget: PixelBudget, sizes: list[int]) -> Any:
    """One medium, decoded; `sizes` are the bytes of the request's audio and video so far."""
    check_encoded_size(len(medium.content), medium.input, limits)
    url = _url(medium)
    content = None if url is None else await fetch_media(url, medium.input, limits)
    decoded = await asyncio.to_thread(_decoded, medium, content, limits, budget)
    if medium.modality != "image":
        sizes.append(_size(decoded))
        if sum(sizes) > limits.decoded:
            raise InvalidRequestError(
                f"input '{medium.input}' holds audio or video of more than {limits.decoded} bytes, "
                "decoded and with others together"
            )
    return decoded


def _url(medium: Medium) -> str | None:
    """`image` holds Base64, `image_url` a URL, the others either."""
    start = medium.content[:64].lower()
    if not (medium.input == "image_url" or b"://" in start or start.startswith(b"data:")):
        return None
    if medium.input == "image":
        raise InvalidRequestError("input 'image' holds Base64; URLs go into input 'image_url'")
    try:
        return medium.content.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(medium, error) from error


def _decoded(
    medium: Medium, content: bytes | None, limits: MediaLimits, budget: PixelBudget
) -> Any:
    """Image, audio or video of a medium, decoded; without a file's `content` from its Base64.

    For threads.
    """
    if content is None:
        try:
            content = decode_base64(medium.content, medium.input, limits)
        except ValueError as error:
            raise _unreadable(medium, error) from error
    if medium.modality == "image":
        return decode_image(content, medium.input, budget)
    try:
        return _DECODERS[medium.modality](content, limits)
    except ImportError as error:
        raise InvalidRequestError(
            f"input '{medium.input}' cannot be decoded where vLLM runs: {error}"
        ) from error
    except Exception as error:  # of decoders, of any kind
        raise _unreadable(medium, error) from error


def _size(decoded: Any) -> int:
    """Bytes of audio or video as vLLM's decoders return it, with facts about it."""
    samples, _ = getattr(decoded, "media", decoded)
    return int(samples.nbytes)


def _unreadable(medium: Medium, error: Exception) -> InvalidRequestError:
    a = "an image" if medium.modality == "image" else medium.modality
    return InvalidRequestError(f"input '{medium.input}' does not hold {a}: {error}")


def _audio(content: bytes, _: MediaLimits) -> Any:
    return import_module("vllm.multimodal.media").AudioMediaIO().load_bytes(content)


def _video(content: bytes, limits: MediaLimits) -> Any:
    _check_frames(content, limits)
    media = import_module("vllm.multimodal.media")
    return media.VideoMediaIO(media.ImageMediaIO(), num_frames=_FRAMES).load_bytes(content)


def _check_frames(content: bytes, limits: MediaLimits) -> None:
    """Refuse frames of which those that are taken would not fit into memory."""
    cv2 = import_module("cv2")
    capture = cv2.VideoCapture(BytesIO(content), cv2.CAP_FFMPEG, [])
    if not capture.isOpened():  # nor is it `release`d: OpenCV crashes at that
        raise ValueError("it cannot be opened")
    width, height = (
        int(capture.get(one)) for one in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
    )
    if width * height * _CHANNELS * _FRAMES > limits.decoded:
        raise ValueError(f"{_FRAMES} frames of {width} x {height} pixels are too large")


_DECODERS: Final[Mapping[str, Callable[[bytes, MediaLimits], Any]]] = {
    "audio": _audio,
    "video": _video,
}
