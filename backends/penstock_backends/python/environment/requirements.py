"""What a requirements file asks for, as a text that differs where the outcome may."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import url2pathname

_FURTHER = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)(?:\s+|=)(\S+)")
_OF_ITS_PLACE = re.compile(r"\s*(?:-e\b|--editable\b)|(?![^#]*://)[^#]*(?:/|\.whl\b)")
_LOCAL_URL = "file://"
_ARCHIVES = ".whl", ".gz", ".zip"
_EXTRAS = re.compile(r"\[[^/]*$")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def meaning(requirements: Path) -> str:
    """Its lines, those of the files that it names, and its place if that matters to one of them.

    Of packages that lie in files, also their size and time; what lies in directories counts as it
    is when it is installed.
    """
    texts: list[str] = []
    _collect(requirements, requirements.parent, texts, set())
    return "\n".join(texts)


def _collect(path: Path, directory: Path, texts: list[str], seen: set[Path]) -> None:
    """Collect what a file says; pip runs in `directory`."""
    path = path.resolve()
    if path in seen or not path.is_file():  # of a missing one pip tells
        return
    seen.add(path)
    text = path.read_text(errors="replace")
    texts.append(text)
    for line in text.splitlines():
        if further := _FURTHER.match(line):
            _collect(path.parent / further[1], directory, texts, seen)
            continue
        if _OF_ITS_PLACE.match(line):
            texts.append(str(path.parent))
        texts += map(_state, _archives(line, directory))


def _archives(line: str, directory: Path) -> Iterator[Path]:
    """The files with packages that a line names, itself or by their directory (`--find-links`)."""
    for word in re.split(r"[\s=;]+", _COMMENT.sub("", line)):
        place = url2pathname(_EXTRAS.sub("", word.removeprefix(_LOCAL_URL).partition("#")[0]))
        path = directory / place
        if os.path.isfile(path) and ("/" in place or path.suffix in _ARCHIVES):
            yield path
        elif os.path.isdir(path) and "/" in place:
            found = (each for kind in _ARCHIVES for each in path.glob(f"*{kind}"))
            yield from sorted(each for each in found if each.is_file())


def _state(path: Path) -> str:
    """What differs when another file has taken the place of this one."""
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
