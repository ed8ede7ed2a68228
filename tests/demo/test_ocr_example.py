"""The ensemble of examples/ocr: a file of an image in, its lines of text out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from examples.ocr.build import INSTALL, networks, write_repository
from PIL import Image, ImageDraw, ImageFont
from tritonclient.utils import InferenceServerException

from harness.serving import Served, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.needs("PP-OCR", "" if networks() else f"no networks: {INSTALL}"),
]

LINES = ["Penstock serves models", "since 2026", "to anybody who asks"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("ocr")
    write_repository(folder / "models")
    with serving(folder / "models", folder / "log") as served:
        yield served


def written(lines: list[str], kind: str, size: tuple[int, int] = (720, 480)) -> bytes:
    """The file of an image with lines of text."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for place, line in enumerate(lines):
        draw.text((40, 60 + 110 * place), line, "black", ImageFont.load_default(40))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def without_spaces(text: bytes | str) -> str:
    """The recogniser of this package, made for Chinese, leaves spaces between words away."""
    return (text.decode() if isinstance(text, bytes) else text).replace(" ", "")


def read(server: Served, file: bytes) -> Any:
    tensor = httpclient.InferInput("IMAGE", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([file], object))
    with httpclient.InferenceServerClient(server.http, network_timeout=120) as client:
        return client.infer("ocr", [tensor])


@pytest.mark.contract("E-22")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_lines_are_read_from_top_to_bottom(server: Served, kind: str) -> None:
    answer = read(server, written(LINES, kind))
    found = [without_spaces(text) for text in answer.as_numpy("TEXTS")]
    assert found == [without_spaces(line) for line in LINES]
    assert (answer.as_numpy("CONFIDENCES") > 0.8).all()
    boxes = answer.as_numpy("BOXES")
    assert boxes.shape == (3, 4)
    assert (np.abs(boxes[:, 1] - [60, 170, 280]) < 25).all()


def test_a_picture_of_another_size_has_boxes_of_its_own(server: Served) -> None:
    answer = read(server, written(LINES[:1], "PNG", (1440, 480)))
    (box,) = answer.as_numpy("BOXES")
    assert without_spaces(answer.as_numpy("TEXTS")[0]) == without_spaces(LINES[0])
    assert 20 < box[0] < 60 < 400 < box[2] < 600


def test_what_is_no_image_is_refused(server: Served) -> None:
    with pytest.raises(InferenceServerException, match=r"in ensemble 'ocr', .*'x'"):
        read(server, b"no image")


def test_a_picture_without_text_has_an_empty_line(server: Served) -> None:
    answer = read(server, written([], "PNG"))
    assert answer.as_numpy("TEXTS").tolist() == [b""]
