"""Images of requests: which are decoded, and for how long."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO

import pytest
from PIL import Image

from penstock.backend import InvalidRequestError
from penstock_backends.language_model import PixelBudget, decode_image
from penstock_backends.language_model.media.image_decoding import FORMATS

_EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
"""An image that Pillow has Ghostscript draw."""


def encoded(form: str, width: int = 3, height: int = 2, color: str = "red") -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), color).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize("form", FORMATS)
def test_an_image_of_a_listed_format_is_decoded(form: str) -> None:
    image = decode_image(encoded(form), "image", PixelBudget())
    assert (image.mode, image.size) == ("RGB", (3, 2))


@pytest.mark.parametrize("content", [_EPS, encoded("PPM"), encoded("PCX"), encoded("TGA"), b"x"])
def test_no_other_is(content: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="formats PNG, JPEG, WEBP, GIF, BMP, TIFF"):
        decode_image(content, "image", PixelBudget())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cut", [2, 8, 20])
def test_no_refusal_tells_an_address(form: str, cut: int) -> None:
    """Pillow tells the object that it reads from, and with it where that lies in memory."""
    content = encoded(form, 300, 200)[:cut]
    with pytest.raises(InvalidRequestError, match="does not hold an image") as refused:
        decode_image(content, "image", PixelBudget())
    assert "0x" not in refused.value.message
    assert "object at" not in refused.value.message


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP"])
def test_decoding_ends_when_its_time_is_over(form: str) -> None:
    with pytest.raises(InvalidRequestError, match="longer than 0 s to decode"):
        decode_image(encoded(form), "image", PixelBudget(), seconds=0)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["WEBP", "TIFF"])
def test_what_is_decoded_at_once_has_fewer_pixels(form: str) -> None:
    with pytest.raises(InvalidRequestError, match="at most 50000000 are allowed"):
        decode_image(encoded(form, 10_000, 5_001), "image", PixelBudget())


def test_a_process_may_keep_those_formats_alone() -> None:
    """Also for whoever opens images without naming them, as engines do."""
    code = (
        "import io, sys; from PIL import Image, UnidentifiedImageError as No\n"
        "from penstock_backends.language_model import keep_image_formats\n"
        "keep_image_formats()\n"
        f"good, bad = {encoded('PNG')!r}, {_EPS!r}\n"
        "print(Image.open(io.BytesIO(good), formats=['EPS', 'PNG']).size)\n"
        "try: Image.open(io.BytesIO(bad))\n"
        "except No: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(3, 2)", "refused"]


def test_sizes_of_large_images_are_neither_told_nor_kept() -> None:
    """Pillow warns of each, and Python keeps the text of a warning for ever."""
    code = (
        "import struct, sys, zlib\n"
        "from penstock_backends.language_model import PixelBudget, decode_image\n"
        "for width in range(9_000, 9_020):\n"
        "    head = b'IHDR' + struct.pack('>IIBBBBB', width, 10_000, 8, 2, 0, 0, 0)\n"
        "    part = struct.pack('>I', 13) + head + struct.pack('>I', zlib.crc32(head))\n"
        "    content = b'\\x89PNG\\r\\n\\x1a\\n' + part + b'\\0\\0\\0\\1IDAT'\n"
        "    try: decode_image(content, 'image', PixelBudget(1))\n"
        "    except Exception as error: print(error)\n"
        "kept = getattr(sys.modules['PIL.Image'], '__warningregistry__', {})\n"
        "print([each for each in kept if each != 'version'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *refusals, kept = done.stdout.splitlines()
    assert (len(refusals), kept, done.stderr) == (20, "[]", "")
