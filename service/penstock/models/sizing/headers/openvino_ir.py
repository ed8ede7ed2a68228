"""Constants of OpenVINO's IR: the XML file says their types, the file of weights beside it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NoReturn

from penstock.models.sizing.headers.header_file import HeaderFile
from penstock.models.sizing.headers.torch_archive import STORED

_CHUNK = 1 << 20
_MOST_XML = 512 << 20
_MOST_CONSTANTS = 1 << 20
_LONGEST_TAG = 1 << 16
_DATA = re.compile(rb"<data ([^<>]*)>")
_ATTRIBUTE = re.compile(rb'(element_type|offset|size)="([^"]*)"')

_TYPES = {
    "f64": "FP64",
    "f32": "FP32",
    "f16": "FP16",
    "bf16": "BF16",
    "f8e4m3": "FP8",
    "f8e5m2": "FP8",
    "f4e2m1": "FP4",
    "boolean": "BOOL",
}


def read_openvino_ir(path: Path) -> dict[str, int]:
    """Bytes of weights by data type, of the XML file at `path`. Raises `ModelLoadError`."""
    left = _bytes_beside(path)
    found = Counter[str]()
    for dtype, size in _constants(path).values():
        if size > left:
            _refuse(path)
        found[dtype] += size
        left -= size
    found[STORED] += left
    return {dtype: size for dtype, size in found.items() if size}


def check_openvino_ir(path: Path) -> None:
    """Raise `ModelLoadError` for constants that lie behind the end of the file of weights."""
    there = _bytes_beside(path)
    if any(begin + size > there for begin, (_, size) in _constants(path).items()):
        _refuse(path)


def _bytes_beside(path: Path) -> int:
    weights = path.with_suffix(".bin")
    return weights.stat().st_size if weights.is_file() else 0


def _refuse(path: Path) -> NoReturn:
    with HeaderFile.opened(path) as file:
        file.fail(f"has constants that '{path.stem}.bin' beside it does not hold")


def _constants(path: Path) -> dict[int, tuple[str, int]]:
    """Type and bytes of constants by where they begin; those of the same bytes are one."""
    found: dict[int, tuple[str, int]] = {}
    with HeaderFile.opened(path, _MOST_XML) as file:
        rest = b""
        while file.at < file.size:
            text = rest + file.read(min(_CHUNK, file.size - file.at))
            for tag in _DATA.finditer(text):
                given = dict(_ATTRIBUTE.findall(tag[1]))
                if len(given) == 3:
                    found[_number(file, given[b"offset"])] = (
                        _name(given[b"element_type"].decode(errors="replace")),
                        _number(file, given[b"size"]),
                    )
            if len(found) > _MOST_CONSTANTS:
                file.fail("has more constants than any model")
            cut = text.rfind(b"<")
            rest = text[cut:][:_LONGEST_TAG] if cut >= 0 else b""
    return found


def _number(file: HeaderFile, text: bytes) -> int:
    if not (text.isdigit() and len(text) < 20):
        file.fail(f"has a constant at {text[:40]!r}, which is no number")
    return int(text)


def _name(text: str) -> str:
    if text in _TYPES:
        return _TYPES[text]
    whole = re.fullmatch(r"([iu])(\d{1,2})", text)
    if whole is None:
        return text[:16]
    return f"{'INT' if whole[1] == 'i' else 'UINT'}{whole[2]}"
