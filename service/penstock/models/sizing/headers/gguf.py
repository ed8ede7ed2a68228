"""Header of a GGUF file: keys with values, then the table of tensors."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from penstock.models.sizing.headers.header_file import HeaderFile

Value = int | float | str | tuple[int, ...]

_STRING, _ARRAY = 8, 9
_KINDS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""Letters of `struct` by the number of a type of value."""

_TYPES = {
    0: ("FP32", 1, 4),
    1: ("FP16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("INT8", 1, 1),
    25: ("INT16", 1, 2),
    26: ("INT32", 1, 4),
    27: ("INT64", 1, 8),
    28: ("FP64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""Name, elements and bytes of a block, by the number of a type of tensor."""

_LATER = "type "
"""How the data type begins, before its number, of tensors whose type is not in the table."""

_MOST_ENTRIES = 1 << 16
_MOST_TENSORS = 1 << 20
_MOST_STRINGS = 1 << 21
_KEPT = 1 << 12
"""Numbers of an array that are kept: one for each layer of a model."""
_NEEDED, _MOST_ARRAYS = (".head_count", ".head_count_kv"), 8
"""How keys end whose arrays are kept, and how many: a model has one of each."""
_LONGEST = 1 << 24
_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the header says: `metadata`, of arrays only numbers of heads, and bytes by data type."""

    metadata: Mapping[str, Value]
    weights: Mapping[str, int]


def read_gguf(path: Path) -> GgufHeader:
    """Read the header. Raises `ModelLoadError`."""
    with HeaderFile.opened(path) as file:
        if file.read(4) != b"GGUF":
            file.fail("is not a GGUF file")
        file.number("I")  # the version
        tensors, entries = file.number("Q"), file.number("Q")
        if tensors > _MOST_TENSORS or entries > _MOST_ENTRIES:
            file.fail(f"has a header of {tensors} tensors and {entries} keys, more than any model")
        metadata = _metadata(file, entries)
        weights = _weights(file, tensors)
    return GgufHeader(metadata, weights)


def _weights(file: HeaderFile, tensors: int) -> dict[str, int]:
    """Bytes by data type; tensors of types that came later share what the others leave."""
    weights, end, later = Counter[str](), 0, ""
    for _ in range(tensors):
        dtype, size, begin = _tensor(file)
        weights[dtype] += size
        end = max(end, begin + size)
        later = dtype if dtype.startswith(_LATER) else later
    if file.at + end > file.size or weights.total() > file.size:
        file.fail("is cut short, or damaged: its tensors do not fit into it")
    if later:
        weights[later] += max(0, file.size - file.at - weights.total())
    return dict(weights)


def _metadata(file: HeaderFile, entries: int) -> dict[str, Value]:
    found, arrays = dict[str, Value](), 0
    for _ in range(entries):
        key, value = _entry(file, arrays < _MOST_ARRAYS)
        found[key] = value
        arrays += isinstance(value, tuple)
    return found


def _entry(file: HeaderFile, keeps: bool) -> tuple[str, Value]:
    key = _string(file)
    kind = file.number("I")
    if kind == _ARRAY:
        return key, _array(file, keeps and key.endswith(_NEEDED))
    return key, _string(file) if kind == _STRING else _scalar(file, kind)


def _scalar(file: HeaderFile, kind: int) -> int | float:
    letter = _letter(file, kind)
    (value,) = struct.unpack(f"<{letter}", file.read(struct.calcsize(letter)))
    return float(value) if letter in "fd" else int(value)


def _array(file: HeaderFile, keeps: bool) -> Value:
    """A short array of whole numbers, if it is kept; of any other its length."""
    kind, length = file.number("I"), file.number("Q")
    if kind == _STRING:
        if length > _MOST_STRINGS:
            file.fail(f"has an array of {length} texts, more than any model")
        for _ in range(length):
            file.skip(file.number("Q"))
        return length
    letter = _letter(file, kind)
    size = struct.calcsize(letter)
    if not keeps or length > _KEPT or letter in "fd":
        file.skip(size * length)
        return length
    return struct.unpack(f"<{length}{letter}", file.read(size * length))


def _tensor(file: HeaderFile) -> tuple[str, int, int]:
    """Data type, bytes and begin of a tensor, from the begin of the first."""
    file.skip(file.number("Q"))  # its name
    dimensions = file.number("I")
    if dimensions > _DIMENSIONS:
        file.fail(f"has a tensor of {dimensions} dimensions")
    elements = prod(file.number("Q") for _ in range(dimensions))
    kind, begin = file.number("I"), file.number("Q")
    name, block, size = _TYPES.get(kind, (f"{_LATER}{kind}", 1, 0))
    return name, -(-elements // block) * size, begin


def _letter(file: HeaderFile, kind: int) -> str:
    if kind not in _KINDS:
        file.fail(f"has a value of type {kind}, which is not known")
    return _KINDS[kind]


def _string(file: HeaderFile) -> str:
    length = file.number("Q")
    if length > _LONGEST:
        file.fail(f"has a text of {length} bytes in its header")
    return file.read(length).decode(errors="replace")
