"""`Door`: a reader of bytes that strangers send."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Read = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Door:
    """A reader of bytes.

    `open` makes the reader, importing what it needs, with a folder for files. `refuses` are the
    errors with which it may answer, by the names of their classes, so that the table of doors
    imports nothing. `quick` are the inputs that `make test` tries.
    """

    open: Callable[[Path], Read]
    examples: Callable[[], Sequence[bytes]]
    refuses: frozenset[str]
    words: Sequence[bytes] = ()
    quick: int = 3000

    def refuse(self, error: Exception) -> bool:
        """Whether an error is one of its own."""
        return any(one.__name__ in self.refuses for one in type(error).__mro__)


def on_one_loop(call: Callable[[bytes], Coroutine[Any, Any, None]]) -> Read:
    """A reader by coroutines on a loop of its own: one for each input would take as long again."""
    loop = asyncio.new_event_loop()

    def read(data: bytes) -> None:
        loop.run_until_complete(call(data))

    weakref.finalize(read, loop.close)
    return read


OURS = frozenset({"InferenceError"})
"""Errors of Penstock's own."""
PROTOBUF = OURS | {"DecodeError"}
ARCHIVES = frozenset({"ArchiveError"})
NONE = frozenset[str]()

JSON = (b'":', b"[", b"{", b"}", b"null", b"1e999", b"-0", b"\\ud800", b"NaN", b"\xff", b"1" * 40)
"""Words of JSON, some of them wrong."""
PROTO = (b"\x0a", b"\xff" * 9 + b"\x01", b"\x80" * 9, b"\x0b", b"\x0c")
"""Tags and numbers of protobuf's wire."""


def text_of(data: bytes) -> str:
    """Bytes as they reach a reader of text: as UTF-8, without what is none."""
    return data.decode("utf-8", "ignore")


def json_of(*values: Any) -> Callable[[], list[bytes]]:
    """Examples that are JSON."""
    return lambda: [json.dumps(value).encode() for value in values]
