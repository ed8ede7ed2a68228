"""`SharedModel`: a compiled model or a session that all instances of a model share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from penstock.backend import ModelConfig


class SharedModel:
    """An opened model, made for the first instance that asks and gone with the last."""

    _all: ClassVar[WeakValueDictionary[Hashable, SharedModel]] = WeakValueDictionary()
    _lock = Lock()

    def __init__(self, config: ModelConfig) -> None:
        self._config = config  # alive as long as its `id` is a key
        self._making = Lock()
        self._made: Any = None

    @classmethod
    def of(cls, config: ModelConfig, path: Path, place: Hashable) -> SharedModel:
        """The model of the instances of one load, in one place; another if the files are.

        The place is a host policy, and a device where there are several.
        """
        key = (id(config), path, place, _stamp(path))
        with cls._lock:
            found = cls._all.get(key)
            if found is None:
                found = cls._all[key] = cls(config)
            return found

    def get(self, make: Callable[[], Any]) -> Any:
        """The model that the first call has made; those beside it wait."""
        with self._making:
            if self._made is None:
                self._made = make()
            return self._made


def _stamp(path: Path) -> Hashable:
    """A stamp of the files of a model, which changes with them."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path, path.with_suffix(".bin")]
    found = [file.stat() for file in files if file.is_file()]
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)
