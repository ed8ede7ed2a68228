"""Keys in a policy file: added and taken away in its text, whose comments and order stay.

What an edit has made is read again, and must say what was meant; else nothing is written.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.access.policy import key_hash
from penstock.access.policy_file import KEY_HASH, MOST_KEYS, callers_of, check_name
from penstock.core.errors import ConfigError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"^[ \t]*\[[^\n]*$", re.MULTILINE)
_KEYS: Final = re.compile(r"^[ \t]*keys[ \t]*=[ \t]*\[", re.MULTILINE)
_BYTES: Final = 32
_SHOWN: Final = 12
"""Digits of a hash that name a key in lists."""

Callers = Mapping[str, Sequence[str]]
"""The hashes of keys by the names of callers."""


def new_key(file: Path, name: str) -> str:
    """A new key of a caller, which is in the file from now on by its hash; returns the key.

    Raises `ConfigError`, also where the caller has two already.
    """
    check_name(name)
    key = f"psk_{secrets.token_urlsafe(_BYTES)}"
    line = f'"{KEY_HASH}{key_hash(key)}"'

    def added(text: str, callers: Callers) -> str:
        own = callers.get(name)
        if own is not None and len(own) >= MOST_KEYS:
            raise ConfigError(f"'{name}' has {MOST_KEYS} keys already: revoke one of them first")
        if own is None:
            gap = "\n" if text and not text.endswith("\n\n") else ""
            newline = "" if not text or text.endswith("\n") else "\n"
            return f"{text}{newline}{gap}[callers.{_written(name)}]\nkeys = [{line}]\n"
        start, end = _section(text, name)
        if (found := _KEYS.search(text, start, end)) is not None:
            return f"{text[: found.end()]}{line}{', ' if own else ''}{text[found.end() :]}"
        return f"{text[:start]}\nkeys = [{line}]{text[start:]}"

    _edit(file, added, name, key_hash(key), add=True)
    return key


def revoke_key(file: Path, name: str, beginning: str = "") -> str:
    """Take a key of a caller away, the only one or that whose hash begins so; returns its hash."""
    callers = read_keys(file)
    if name not in callers:
        raise ConfigError(f"'{file}' has no caller '{name}'")
    found = [each for each in callers[name] if each.startswith(beginning.removeprefix(KEY_HASH))]
    if len(found) != 1:
        told = ", ".join(each[:_SHOWN] for each in callers[name]) or "none"
        raise ConfigError(f"say which key of '{name}', by the beginning of its hash: {told}")
    (hashed,) = found

    def taken(text: str, _: Callers) -> str:
        start, end = _section(text, name)
        one = re.compile(rf"""["']{KEY_HASH}{hashed}["'][ \t]*,?[ \t]*""", re.IGNORECASE)
        return text[:start] + one.sub("", text[start:end], count=1) + text[end:]

    _edit(file, taken, name, hashed, add=False)
    return hashed


def read_keys(file: Path) -> Callers:
    """The hashes of all callers' keys; raises `ConfigError`."""
    return _callers(_read(file), file)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the access policy '{file}': {error}") from error


def _callers(text: str, file: Path) -> Callers:
    try:
        return callers_of(text)
    except ConfigError as error:
        raise ConfigError(f"the access policy '{file}': {error}") from error


def _edit(
    file: Path, change: Callable[[str, Callers], str], name: str, hashed: str, *, add: bool
) -> None:
    """Change the text of a file, by one key of a caller and nothing else."""
    with _locked(file) as real:
        text = _read(real)
        callers = _callers(text, file)
        try:
            new = change(text, callers)
            right = _said(new) == _expected(_said(text), name, hashed, add=add)
        except (tomllib.TOMLDecodeError, LookupError):
            right = False
        if not right:
            what = "add to" if add else "take from"
            raise ConfigError(
                f"'{file}' is written in a form that this command does not edit; by hand,"
                f" {what} the keys of '{name}': \"{KEY_HASH}{hashed}\""
            )
        _replace(real, new)


def _said(text: str) -> dict[str, Any]:
    """The content of a file, for comparison: hashes in one case, in any order."""
    said = tomllib.loads(text)
    for caller in said.get("callers", {}).values():
        caller["keys"] = sorted(each.lower() for each in caller.get("keys", []))
    return said


def _expected(said: dict[str, Any], name: str, hashed: str, *, add: bool) -> dict[str, Any]:
    keys = said.setdefault("callers", {}).setdefault(name, {"keys": []})["keys"]
    if add:
        keys.append(f"{KEY_HASH}{hashed}")
        keys.sort()
    else:
        keys.remove(f"{KEY_HASH}{hashed}")
    return said


def _section(text: str, name: str) -> tuple[int, int]:
    """Where the table of a caller begins, behind its header, and ends. Raises `LookupError`."""
    headers = list(_HEADER.finditer(text))
    spelled = "|".join(map(re.escape, _spellings(name)))
    own = re.compile(rf"\s*\[\s*callers\s*\.\s*(?:{spelled})\s*\]\s*(?:#.*)?")
    for at, header in enumerate(headers):
        if own.fullmatch(header[0]):
            end = headers[at + 1].start() if at + 1 < len(headers) else len(text)
            return header.end(), end
    raise LookupError(name)


def _spellings(name: str) -> Iterator[str]:
    if _BARE.fullmatch(name):
        yield name
    yield json.dumps(name, ensure_ascii=False)
    if "'" not in name:
        yield f"'{name}'"


def _written(name: str) -> str:
    return next(_spellings(name))


@contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """Hold a file, made where there is none, against other edits; the path behind all links."""
    real = Path(os.path.realpath(file))
    while True:
        try:
            held = os.open(real, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot write '{file}': {error.strerror}") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.path.exists(real) and os.path.samestat(os.fstat(held), os.stat(real)):
                yield real
                return
        finally:
            os.close(held)  # another has replaced the file meanwhile: hold that one


def _replace(file: Path, text: str) -> None:
    """Write a file anew, whole or not at all, with the rights and the owner that it has."""
    try:
        found = file.stat()
        handle, new = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as output:
                output.write(text)
                os.fchmod(output.fileno(), found.st_mode & 0o777)
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(output.fileno(), found.st_uid, found.st_gid)
                output.flush()
                os.fsync(output.fileno())
            os.replace(new, file)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write '{file}': {error.strerror}") from error
