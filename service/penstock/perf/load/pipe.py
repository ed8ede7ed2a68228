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
    """The next message of a pipe; raises `EOFError` at its end."""
    size = pipe.read(_LENGTH.size)
    if len(size) < _LENGTH.size:
        raise EOFError
    data = pipe.read(_LENGTH.unpack(size)[0])
    return pickle.loads(data)
