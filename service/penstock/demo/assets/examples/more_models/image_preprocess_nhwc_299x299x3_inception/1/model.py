"""Decodes image files and scales them as Inception takes them: 299 x 299 pixels from -1 to 1."""

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from penstock.model import InvalidRequestError, Model, Request, Response

SIZE = (299, 299)


class ImagePreprocess(Model):
    def infer(self, request: Request) -> Response:
        images = [decode(row) for row in request["INPUT"].flat]
        return Response({"OUTPUT": np.stack(images)})


def decode(file: bytes) -> np.ndarray:
    try:
        image = Image.open(io.BytesIO(file)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise InvalidRequestError(f"'INPUT' must hold image files: {error}") from error
    pixels = np.asarray(image.resize(SIZE, Image.Resampling.BILINEAR), np.float32)
    return pixels / 127.5 - 1
