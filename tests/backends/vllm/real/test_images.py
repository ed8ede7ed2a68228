"""Images in a request."""

from __future__ import annotations

import base64
from importlib import import_module
from io import BytesIO

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock_backends.vllm.images import read_images

Image = import_module("PIL.Image")


def request(*elements: bytes) -> InferenceRequest:
    return InferenceRequest("m", inputs={"image": Tensor.from_strings(elements)})


def test_images_are_read_as_rgb() -> None:
    file = BytesIO()
    Image.new("L", (3, 2)).save(file, "PNG")
    text = base64.b64encode(file.getvalue())
    images = read_images(request(text, text))
    assert [(image.mode, image.size) for image in images] == [("RGB", (3, 2))] * 2


def test_no_images_is_nothing() -> None:
    assert read_images(InferenceRequest("m")) == []


@pytest.mark.parametrize("element", [b"", b"?", base64.b64encode(b"no image")])
def test_anything_else_is_refused(element: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="input 'image' does not hold an image"):
        read_images(request(element))
