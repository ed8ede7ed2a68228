"""Commands run with their output in the log, and their progress bars on a terminal if any."""

from __future__ import annotations

import codecs
import os
import pty
import re
import subprocess
import termios
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from penstock.core.errors import ModelLoadError

Log = Callable[[str], None]

_STDERR = 2

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Escape sequences of terminals: colours, movements of the cursor."""

_CLEAR = "\r\x1b[2K"
"""Escape sequence that clears the line of the cursor."""


def own_terminal() -> int | None:
    """The descriptor of standard error, if it is a terminal."""
    return _STDERR if os.isatty(_STDERR) else None


def run_command(
    log: Log, *command: str, where: Path | None = None, terminal: int | None = None
) -> None:
    """Run a command with its lines in the log; `ModelLoadError` holds the last one if it fails.

    With the descriptor of a `terminal` the command has one too, and what it overwrites again and
    again, such as a progress bar, is shown there and not logged.
    """
    ours, theirs = os.pipe() if terminal is None else _new_terminal(terminal)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=where
    ) as process:
        os.close(theirs)
        output, last = CommandOutput(), ""
        for text in chain(_read(ours), [None]):
            lines = output.end() if text is None else output.feed(text)
            _show(terminal, _CLEAR if lines else "")
            for line in lines:
                last = line or last
                log(last)
            _show(terminal, output.progress and _CLEAR + output.progress)
    _show(terminal, _CLEAR)
    if process.returncode:
        text = f"'{' '.join(command)}' failed with status {process.returncode}: {last}"
        raise ModelLoadError(text)


class CommandOutput:
    """Splits output into lines. `progress` is the text of the last, unfinished one so far."""

    def __init__(self) -> None:
        self.progress = ""
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """The lines that are complete now, without those that have overwritten themselves."""
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").split("\n")
        shown, _, rest = self._rest.rpartition("\r")
        self.progress = _plain(rest or shown.rpartition("\r")[2]) if "\r" in self._rest else ""
        return [_plain(line) for line in lines if "\r" not in line]

    def end(self) -> list[str]:
        """A last line that was not completed."""
        return self.feed("\n") if self._rest else []


def _plain(line: str) -> str:
    return _SEQUENCE.sub("", line).rstrip()


def _new_terminal(like: int) -> tuple[int, int]:
    """Both ends of a terminal of the same size."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, termios.tcgetwinsize(like))
    return ours, theirs


def _read(descriptor: int) -> Iterator[str]:
    """The output of the command, piece by piece, until the other end is closed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while data := os.read(descriptor, 1 << 16):
            yield decoder.decode(data)
    except OSError:  # EIO: a terminal's way to end
        return
    finally:
        os.close(descriptor)


def _show(terminal: int | None, text: str) -> None:
    if terminal is not None and text:
        os.write(terminal, text.encode())
