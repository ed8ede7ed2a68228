"""Decoder of the images in a request (VL-05)."""

from __future__ import annotations

import base64
from importlib import import_module
from io import BytesIO
from typing import Any

from penstock.backend import InferenceRequest, InvalidRequestError


def read_images(request: InferenceRequest) -> list[Any]:
    """The images of input `image`, in base64 and any format that Pillow reads, as RGB."""
    tensor = request.inputs.get("image")
    return [] if tensor is None else [_image(element) for element in tensor.elements()]


def _image(element: bytes) -> Any:
    pillow = import_module("PIL.Image")
    try:
        return pillow.open(BytesIO(base64.b64decode(element, validate=True))).convert("RGB")
    except (ValueError, OSError, pillow.DecompressionBombError) as error:
        raise InvalidRequestError(f"input 'image' does not hold an image: {error}") from error
