"""Tries inputs on a door: by chance, or led by the code that they reach."""

from __future__ import annotations

import logging
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.doors import DOORS
from fuzz.inputs import Inputs

CORPORA = Path(__file__).parent / "corpora"
"""A file a door: what led to code that the examples do not reach, in lines of base64."""


class DoorFuzzer:
    """Tries inputs, counts them, and what came of them: `understood`, or an error's class.

    What escapes has its input as a note.
    """

    def __init__(self, name: str, folder: Path, seed: int = 1) -> None:
        self.inputs = self.bytes = 0
        self.outcomes: Counter[str] = Counter()
        self._door = DOORS[name]
        self._read = self._door.open(folder)
        self._made = iter(Inputs(corpus(name), self._door.words, seed))

    def run(self, inputs: int) -> None:
        """Try `inputs` more inputs."""
        with _silent():
            for data in islice(self._made, inputs):
                self.outcomes[self.one(data)] += 1
                self.inputs += 1
                self.bytes += len(data)

    def one(self, data: bytes) -> str:
        """What came of one input."""
        try:
            self._read(data)
        except Exception as error:
            if self._door.refuse(error):
                return type(error).__name__
            error.add_note(data.hex())
            raise
        return "understood"


def corpus(name: str) -> list[bytes]:
    """The examples of a door, and what has been found to lead further."""
    kept = CORPORA / f"{name}.txt"
    lines = kept.read_text().split() if kept.exists() else []
    return [*DOORS[name].examples(), *map(b64decode, lines)]


@contextmanager
def _silent() -> Iterator[None]:
    """Without logs, of which there is one for many an input."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def guided(name: str, kept: Path, options: list[str]) -> None:
    """Fuzz a door with libFuzzer, by what code inputs reach, and end the process.

    New inputs that reach more are kept in a folder; `options` are those of libFuzzer. Code is
    followed where it is imported from here on, so nothing of Penstock may be imported yet.
    """
    atheris = import_module("atheris")
    kept.mkdir(parents=True, exist_ok=True)
    folder = TemporaryDirectory()
    with atheris.instrument_imports(include=["penstock", "penstock_backends"]):
        door = DOORS[name]
        read = door.open(Path(folder.name))
        for number, example in enumerate(corpus(name)):
            (kept / f"example-{number}").write_bytes(example)

    def one(data: bytes) -> None:
        try:
            read(data)
        except Exception as error:
            if not door.refuse(error):
                raise

    words = kept.with_suffix(".words")
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in door.words))
    logging.disable()
    limits = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=8192", f"-dict={words}"]
    atheris.Setup([sys.argv[0], *limits, *options, str(kept)], one)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)
