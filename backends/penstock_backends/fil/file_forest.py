"""`FileForest`: the tensors of a forest as far as its file says them, without treelite."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.backend import Array, InternalError, ModelConfig
from penstock_backends.fil.forest import tensors_of
from penstock_backends.fil.settings import FilSettings
from penstock_backends.tensor_models import Graph

_MOST_BYTES: Final = 1 << 20
"""Bytes that are read of a file: of its end for XGBoost, of its beginning for LightGBM."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PARAMETERS: Final = re.compile(rb'(?<!\\)"learner_model_param"\s*:\s*(\{[^{}]*\})')
_BINARY_PARAMETERS: Final = re.compile(rb"L\0{7}\x13learner_model_param\{")
_BINARY_TEXT: Final = re.compile(rb"L\0{6}(..)", re.DOTALL)
_LINE: Final = re.compile(r"^(num_class|max_feature_idx)=(.*)$", re.MULTILINE)


class FileForest(Graph):
    """The tensors of a forest with so many features and classes."""

    engine = "treelite"

    def __init__(
        self, config: ModelConfig, settings: FilSettings, features: int, classes: int
    ) -> None:
        self.inputs, self.outputs = tensors_of(config, settings, features, classes)
        self.defaults = {}

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        raise InternalError("a file only describes a model")


def read_file_forest(config: ModelConfig, path: Path, settings: FilSettings) -> FileForest | None:
    """The forest in a file; `None` where only treelite can tell."""
    reader = _READERS.get(settings.model_type)
    try:
        sizes = reader(path) if reader is not None else None
    except OSError:  # whoever loads it may be allowed to read it
        return None
    return None if sizes is None else FileForest(config, settings, *sizes)


_Sizes = tuple[int, int]
"""Features and classes."""


def _of_xgboost(given: Mapping[str, object]) -> _Sizes | None:
    """Features and classes by the parameters of a learner, which are texts."""
    features, classes = _number(given.get("num_feature")), _number(given.get("num_class"))
    if features is None or classes is None or _number(given.get("num_target", "1")) not in (0, 1):
        return None
    return features, max(1, classes)


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def _xgboost_json(path: Path) -> _Sizes | None:
    found = _PARAMETERS.findall(_tail(path))
    try:
        return _of_xgboost(json.loads(found[0])) if len(found) == 1 else None
    except ValueError:
        return None


def _xgboost_ubj(path: Path) -> _Sizes | None:
    data = _tail(path)
    found = list(_BINARY_PARAMETERS.finditer(data))
    if len(found) != 1:
        return None
    texts = list(_binary_texts(data, found[0].end()))
    return _of_xgboost(dict(zip(texts[::2], texts[1::2], strict=False)))


def _binary_texts(data: bytes, at: int) -> Iterator[str]:
    """Keys and values of an object of texts, in turn; where it has others, it ends."""
    is_value = False
    while found := _BINARY_TEXT.match(data, at + is_value):
        if is_value and data[at : at + 1] != b"S":
            return
        at = found.end() + int.from_bytes(found[1], "big")
        yield data[found.end() : at].decode(errors="replace")
        is_value = not is_value


def _lightgbm(path: Path) -> _Sizes | None:
    with path.open("rb") as file:
        head = file.read(_MOST_BYTES).decode(errors="replace").partition("\nTree=")[0]
    lines = _LINE.findall(head)
    if not head.startswith("tree\n") or len(lines) != 2:
        return None
    given = dict(lines)
    last, classes = _number(given.get("max_feature_idx")), _number(given.get("num_class"))
    return None if last is None or not classes else (last + 1, classes)


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_BYTES))
        return file.read(_MOST_BYTES)


_READERS: Final[Mapping[str, Callable[[Path], _Sizes | None]]] = {
    "xgboost_json": _xgboost_json,
    "xgboost_ubj": _xgboost_ubj,
    "lightgbm": _lightgbm,
}
