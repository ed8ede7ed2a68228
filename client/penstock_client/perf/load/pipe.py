"""Messages between the processes of a load, pickled, through their standard input and output."""

from __future__ import annotations

import pickle
import struct
from typing import BinaryIO

_LENGTH = struct.Struct("<Q")
"""In front of each message."""


def write_message(pipe: BinaryIO, message: object) -> None:
    """Send a message through a pipe."""
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def read_message(pipe: BinaryIO) -> object:
    """The next message of a pipe; raises `EOFError` at its end, in the middle of a message too."""
    return pickle.loads(_read(pipe, _LENGTH.unpack(_read(pipe, _LENGTH.size))[0]))


def _read(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
