"""Fingerprint of a requirements file: the cache key of the environment made from it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import url2pathname

_INCLUDE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)(?:\s+|=)(\S+)")
_RELATIVE = re.compile(r"\s*(?:-e\b|--editable\b)|(?![^#]*://)[^#]*(?:/|\.whl\b)")
_LOCAL_URL = "file://"
_ARCHIVES = ".whl", ".gz", ".zip"
_EXTRAS = re.compile(r"\[[^/]*$")
_COMMENT = re.compile(r"(?:^|\s)#.*")


def fingerprint(requirements: Path) -> str:
    """A text that differs wherever the installed packages may.

    It holds the lines of the file and of the files that it includes, its directory if a line is
    relative to that, and size and time of packages in files. Packages in directories are not
    tracked: they are installed as they are at the time.
    """
    texts: list[str] = []
    _collect(requirements, requirements.parent, texts, set())
    return "\n".join(texts)


def _collect(path: Path, directory: Path, texts: list[str], seen: set[Path]) -> None:
    """Collect the texts of one file; pip runs in `directory`."""
    path = path.resolve()
    if path in seen or not path.is_file():  # pip reports a missing one
        return
    seen.add(path)
    text = path.read_text(errors="replace")
    texts.append(text)
    for line in text.splitlines():
        if include := _INCLUDE.match(line):
            _collect(path.parent / include[1], directory, texts, seen)
            continue
        if _RELATIVE.match(line):
            texts.append(str(path.parent))
        texts += map(_file_version, _archives(line, directory))


def _archives(line: str, directory: Path) -> Iterator[Path]:
    """The package files that a line names, directly or by their directory (`--find-links`)."""
    for word in re.split(r"[\s=;]+", _COMMENT.sub("", line)):
        place = url2pathname(_EXTRAS.sub("", word.removeprefix(_LOCAL_URL).partition("#")[0]))
        path = directory / place
        if os.path.isfile(path) and ("/" in place or path.suffix in _ARCHIVES):
            yield path
        elif os.path.isdir(path) and "/" in place:
            found = (each for kind in _ARCHIVES for each in path.glob(f"*{kind}"))
            yield from sorted(each for each in found if each.is_file())


def _file_version(path: Path) -> str:
    """Name, size and time: they change when the file is replaced."""
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
