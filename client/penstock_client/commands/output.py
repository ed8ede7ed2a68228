"""Output of commands: tables, JSON, and tensors in a readable form."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.core.tensor import DataType, Tensor

_WIDE = 200
_ELEMENTS = 32
"""Elements of a tensor that are printed; of a longer one the first and the last."""


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")
    sys.stdout.flush()


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below a head; numbers are aligned to the right."""
    lines = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(head):
        numeric = bool(lines) and all(isinstance(line[index], int | float) for line in lines)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(_cell(value)) for value in line))
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else _WIDE, highlight=False).print(table)


def tensor_json(tensor: Tensor) -> dict[str, Any]:
    """A tensor as JSON; strings that are not UTF-8 as base64 in `b64` objects."""
    if tensor.datatype is DataType.BYTES:
        data: Any = [_json_text(element) for element in tensor.elements()]
    else:
        data = _numbers(tensor).reshape(-1).tolist()
    return {"datatype": tensor.datatype.value, "shape": list(tensor.shape), "data": data}


def tensor_text(tensor: Tensor) -> str:
    """The elements of a tensor for people."""
    if tensor.datatype is DataType.BYTES:
        texts = [element.decode(errors="replace") for element in tensor.elements()]
        return texts[0] if len(texts) == 1 else "\n".join(map(repr, texts))
    return np.array2string(_numbers(tensor), threshold=_ELEMENTS, separator=", ")


def _numbers(tensor: Tensor) -> Any:
    array = tensor.numpy()
    if tensor.datatype is DataType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _json_text(element: bytes) -> Any:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(element).decode()}


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
