"""Standard output and error of model processes, copied line by line to the server's own."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Mapping
from contextlib import suppress

_LONGEST = 64 << 10
"""Bytes of a line, beyond which it is broken: a model need not end its lines."""

_LAST_LINES = 1.0
"""Seconds to wait for the last lines: a process left behind may hold the pipes open."""

_ATOMIC = 4096
"""Bytes (PIPE_BUF) that a pipe takes as a whole, however many write to it."""


class NamedLines:
    """Splits output into lines, and puts a name before each. Knows no file or thread.

    A line that is a JSON object stays as it is, for collectors of logs that parse such lines.
    """

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._rest = b""

    def add(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, each with its end."""
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) > _LONGEST:
            lines.append(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest = rest
        return [self._named(line) for line in lines]

    def end(self) -> list[bytes]:
        """The last line, if its end is missing."""
        rest, self._rest = self._rest, b""
        return [self._named(rest)] if rest else []

    def _named(self, line: bytes) -> bytes:
        if line.startswith(b"{") and line.rstrip().endswith(b"}"):
            return line + b"\n"
        return self.name + line + b"\n"


class PrintedOutput:
    """The standard output and error of a process: two pipes, and the thread that empties them.

    The thread is not the server's loop, so that a reader who does not read the server's output
    blocks only models that print. It ends when no process holds the pipes any more.
    """

    def __init__(self, origin: Mapping[str, str]) -> None:
        self._lines = [NamedLines(_prefix(origin)) for _ in range(2)]
        out, self.stdout = os.pipe()
        try:
            err, self.stderr = os.pipe()
        except OSError:  # too many open files
            os.close(out)
            os.close(self.stdout)
            raise
        self._copier = threading.Thread(
            target=self._copy, args=(out, err), name="printed lines", daemon=True
        )
        self._copier.start()

    def close_ends(self) -> None:
        """Close this process's copies of the write ends, once the child has them or failed."""
        os.close(self.stdout)
        os.close(self.stderr)

    def rename(self, origin: Mapping[str, str]) -> None:
        """Put other names before the lines that come from now on."""
        for lines in self._lines:
            lines.name = _prefix(origin)

    def wait(self, seconds: float = _LAST_LINES) -> None:
        """Wait until everything is copied, after the end of the process; a while at most."""
        self._copier.join(seconds)

    def _copy(self, out: int, err: int) -> None:
        with selectors.PollSelector() as selector:
            for source, target, lines in zip((out, err), (1, 2), self._lines, strict=True):
                selector.register(source, selectors.EVENT_READ, (target, lines))
            while selector.get_map():
                for key, _ in selector.select():
                    target, lines = key.data
                    data = os.read(key.fd, _LONGEST)
                    _write(target, lines.add(data) if data else lines.end())
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)


def _prefix(origin: Mapping[str, str]) -> bytes:
    text = " ".join(f"{key}={value}" for key, value in origin.items())
    line = "".join(one if one.isprintable() else "?" for one in text)
    return f"[{line}] ".encode("utf-8", "backslashreplace")


def _write(target: int, lines: list[bytes]) -> None:
    """Write lines, whole ones at a time; what the output does not take is lost."""
    waiting = b""
    for line in [*lines, b""]:
        if waiting and (not line or len(waiting) + len(line) > _ATOMIC):
            with suppress(OSError):
                os.write(target, waiting)
            waiting = b""
        waiting += line
