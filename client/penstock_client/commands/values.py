"""Values of inputs on the command line: `NAME=VALUE`, with files and standard input."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from penstock_client.client import InvalidArgumentError, ModelMetadata
from penstock_client.client.conversion import Value, unknown_input


class Assignment(NamedTuple):
    """A name, and the text of its value."""

    name: str
    text: str


def assignment(text: str) -> Assignment:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return Assignment(name, value)


def read_inputs(assignments: list[Assignment], metadata: ModelMetadata) -> dict[str, Value]:
    """The values of inputs, read as what the model takes; raises `InvalidArgumentError`."""
    datatypes = {tensor.name: tensor.datatype for tensor in metadata.inputs}
    values: dict[str, Value] = {}
    for name, text in assignments:
        if name not in datatypes:
            raise InvalidArgumentError(unknown_input(name, datatypes, metadata.name))
        if name in values:
            raise InvalidArgumentError(f"input '{name}' is given twice")
        values[name] = _value(name, text, datatypes[name])
    return values


def option_value(text: str) -> Any:
    """The value of an option: JSON where it is some, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _value(name: str, text: str, datatype: str) -> Value:
    if text.startswith("@"):
        return _from_file(text[1:], name, datatype)
    return _parsed(text, name, datatype)


def _from_file(path: str, name: str, datatype: str) -> Value:
    """The content of a file: an array of numpy, JSON, or one string; `-` is standard input."""
    if path.endswith(".npy"):
        return _array(path, name)
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    if datatype == "BYTES" and not path.endswith(".json"):
        return data.removesuffix(b"\n") if path == "-" else data
    return _parsed(data.decode(), name, datatype)


def _array(path: str, name: str) -> Value:
    try:
        with Path(path).open("rb") as file:
            found = np.load(file, allow_pickle=False)
    except (EOFError, ValueError, BadZipFile) as error:
        text = f"'{path}', the value of input '{name}', is not an array of numpy: {error}"
        raise InvalidArgumentError(text) from None
    if not isinstance(found, np.ndarray):
        raise InvalidArgumentError(f"'{path}', the value of input '{name}', has several arrays")
    return found


def _parsed(text: str, name: str, datatype: str) -> Value:
    """JSON, or numbers between commas; for strings anything that is not a list is one of them."""
    if datatype == "BYTES":
        return _strings(text)
    try:
        value: Value = json.loads(text if text.lstrip().startswith("[") else f"[{text}]")
    except (ValueError, RecursionError):
        raise InvalidArgumentError(
            f"the value of input '{name}' is not {datatype}: '{_shortened(text)}';"
            " give JSON, numbers between commas, or @FILE"
        ) from None
    return value


def _strings(text: str) -> Value:
    if text.lstrip().startswith("["):
        try:
            listed: Value = json.loads(text)
        except ValueError:
            return text
        return listed
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
