"""`TokenizerBundles`: the files of models' tokenizers, as the zip archives that routers read."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from penstock.core.engine_facts import EngineFacts
from penstock.core.errors import UnsupportedError

_CONFIG: Final = "tokenizer_config.json"
_FILES: Final = (
    *("tokenizer.json", _CONFIG, "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "config.json", "generation_config.json"),
    *("chat_template.json", "preprocessor_config.json", "processor_config.json"),
)
_KINDS: Final = ("*.jinja", "*.model", "*.tiktoken")
_TEMPLATE: Final = "chat_template.jinja"
_ASK: Final = "#GetTokenizer"
_LARGEST: Final = 256 << 20
_MOST_KEPT: Final = 512 << 20
_DATE: Final = (1980, 1, 1, 0, 0, 0)


class Bundle(NamedTuple):
    """An archive, and the hexadecimal digits of its SHA-256."""

    data: bytes
    digest: str


class TokenizerBundles:
    """Makes archives, one at a time, and keeps the last ones, of `most_kept` bytes together.

    The same files make the same bytes everywhere, so that a router sees replicas agree.
    """

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: dict[tuple[Any, ...], Bundle] = {}
        self._turn = Lock()  # of threads

    def get(self, facts: EngineFacts) -> Bundle:
        """The archive of a model's tokenizer; blocks. Raises `UnsupportedError` without files."""
        with self._turn:
            files = _files(facts)
            key = (facts.chat_template, *((str(one), *_stamp(one)) for one in files))
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = _packed(_contents(files, facts))
                while sum(len(one.data) for one in self._kept.values()) > self._most_kept:
                    self._kept.pop(next(iter(self._kept)))
            return found


def tokenizer_path(facts: EngineFacts) -> str:
    """The folder that a router on this machine may read in place of the archive.

    Where that has not all that the archive has, it is a path that nobody can read, so that routers
    ask for the archive: they read what they find first. Blocks.
    """
    at = Path(facts.tokenizer)
    folder = at if at.is_dir() else at.parent
    whole = facts.chat_template is None or (folder / _TEMPLATE).is_file()
    if whole and (folder / _CONFIG).is_file():
        return str(folder)
    return f"{facts.tokenizer}{_ASK}"


def _files(facts: EngineFacts) -> list[Path]:
    """The files by their names, none of which leaves the tokenizer's folder."""
    at = Path(facts.tokenizer) if facts.tokenizer else None
    if at is None or not at.exists():
        raise UnsupportedError("the model's tokenizer is not among the files of this machine")
    folder = at if at.is_dir() else at.parent
    found = {folder / name for name in _FILES} | {
        one for kind in _KINDS for one in folder.glob(kind)
    }
    files = sorted(one for one in found if one.is_file())
    if not files:
        raise UnsupportedError("the model has no files of a tokenizer")
    size = sum(one.stat().st_size for one in files)
    if size > _LARGEST:
        raise UnsupportedError(f"the files of the model's tokenizer have {size} bytes")
    return files


def _stamp(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


def _contents(files: list[Path], facts: EngineFacts) -> dict[str, bytes]:
    """The files, with the template and the special tokens that the server knows from elsewhere.

    A GGUF file holds both within; and `model.json` may have a template of its own.
    """
    contents = {one.name: one.read_bytes() for one in files}
    if facts.chat_template is not None:
        contents[_TEMPLATE] = facts.chat_template.encode("utf-8", "replace")
    if _CONFIG not in contents and (facts.special_tokens or facts.chat_template):
        made: dict[str, Any] = dict(facts.special_tokens)
        if facts.chat_template is not None:
            made["chat_template"] = facts.chat_template
        contents[_CONFIG] = json.dumps(made, indent=1).encode("utf-8", "replace")
    return contents


def _packed(contents: dict[str, bytes]) -> Bundle:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, contents[name])
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())
