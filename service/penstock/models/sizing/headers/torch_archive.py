"""Zip archives of PyTorch: TorchScript, `torch.save`, and packages of `torch.export`."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.models.sizing.headers.header_file import HeaderFile
from penstock.system.archives import DAMAGES, directory_bytes

_END_BYTES = 22
_MOST_DIRECTORY = 16 << 20
_MOST_CONFIG = 16 << 20
_RATIO = 1100
"""How much smaller deflate makes what it packs, at most."""
_SMALL = 1 << 16

_CONFIGS = ("_weights_config.json", "_constants_config.json")
"""How files end that say the data types of a package's tensors."""

_TYPES = {
    1: "UINT8",
    2: "INT8",
    3: "INT16",
    4: "INT32",
    5: "INT64",
    6: "FP16",
    7: "FP32",
    8: "FP64",
    12: "BOOL",
    13: "BF16",
    28: "UINT16",
    29: "FP8",
    30: "FP8",
    31: "FP8",
    32: "FP8",
}
"""Data types by their numbers in the schema of torch.export."""

STORED = "as stored"
"""The data type of weights whose own one cannot be read without running code."""


def read_torch_archive(path: Path) -> dict[str, int]:
    """Bytes of all files in the archive, by data type where it is said. Raises `ModelLoadError`."""
    with HeaderFile.opened(path) as file:
        _check_directory(file)
        try:
            with zipfile.ZipFile(path) as archive:
                return _sizes(file, archive)
        except (zipfile.BadZipFile, *DAMAGES) as error:
            file.fail(f"is a damaged archive: {error}")


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive, by its first bytes."""
    with HeaderFile.opened(path) as file:
        return file.size > _END_BYTES and file.read(4) == b"PK\x03\x04"


def _check_directory(file: HeaderFile) -> None:
    """Refuse a directory larger than any model's, before it is read into memory."""
    size = directory_bytes(file.path)
    if size is None:
        file.fail("is no archive of PyTorch")
    if size > _MOST_DIRECTORY:
        file.fail(f"is a damaged archive: it has a directory of {size} bytes")


def _sizes(file: HeaderFile, archive: zipfile.ZipFile) -> dict[str, int]:
    entries = archive.infolist()
    if sum(entry.compress_size for entry in entries) > file.size:
        file.fail("is a damaged archive: its files overlap")
    for entry in entries:
        if entry.file_size > entry.compress_size * _RATIO + _SMALL:
            file.fail(
                f"is a damaged archive: {entry.filename[:80]!r} is of {entry.file_size} bytes"
            )
    types = _types(file, archive)
    found = Counter[str]()
    for entry in entries:
        found[types.get(entry.filename.rpartition("/")[2], STORED)] += entry.file_size
    return {dtype: size for dtype, size in found.items() if size}


def _types(file: HeaderFile, archive: zipfile.ZipFile) -> Mapping[str, str]:
    """The data types of files with weights, by their names, of a package of `torch.export`."""
    found: dict[str, str] = {}
    for entry in archive.infolist():
        if not entry.filename.endswith(_CONFIGS) or not _is_plain(entry):
            continue
        if entry.file_size > _MOST_CONFIG:
            file.fail(f"has {entry.filename[:80]!r} of {entry.file_size} bytes")
        try:
            config = json.loads(archive.read(entry))["config"]
            found.update(_type(each) for each in config.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
            continue  # another schema: then their sizes are known, and their types are not
    return found


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    """Whether a file is packed as PyTorch packs it, and not encrypted."""
    return entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and (
        not entry.flag_bits & 1
    )


def _type(entry: Mapping[str, Any]) -> tuple[str, str]:
    number = entry["tensor_meta"]["dtype"]
    return str(entry["path_name"]), _TYPES.get(number, STORED)
