"""The rule about names of files that come from outside: a bucket, hub, archive or load request.

Whoever makes a path of such a name asks here first. A name is relative, and its parts stand between
slashes. Names that an operator has given files of this machine are not held to the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST_PART = 255
"""Bytes of a part: what file systems take."""

LONGEST_NAME = 1024
"""Bytes of a whole name: what object stores take, a quarter of what the system does."""

_NEVER = re.compile(r"[\0-\x1f\x7f\\\ud800-\udc7f\udd00-\udfff]")
"""Control characters, the other system's slash, and what is no text. Bytes that are not UTF-8 may
stand in a name, as they do on the disk."""

_DRIVE = re.compile(r"[A-Za-z]:(/|$)")


def wrong_name(name: str) -> str:
    """Why a name is no path of a file below a folder; empty for one that is."""
    if _DRIVE.match(name):
        return "it begins with a drive"
    if _NEVER.search(name):
        return "it has a character that no file's name may have"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"it has a part '{part}'"
        if _size(part) > LONGEST_PART:
            return f"a part of it has more than {LONGEST_PART} bytes"
    if _size(name) > LONGEST_NAME:
        return f"it has more than {LONGEST_NAME} bytes"
    return ""


def folders_above(name: str) -> Iterator[str]:
    """The folders that a name lies in, outermost first."""
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


def clash(names: Iterable[str]) -> str:
    """The first name of a file that lies below an earlier one, or is its folder; empty for none."""
    files, folders = set[str](), set[str]()
    for name in names:
        above = set(folders_above(name))
        if name in folders or not above.isdisjoint(files):
            return name
        files.add(name)
        folders |= above
    return ""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
