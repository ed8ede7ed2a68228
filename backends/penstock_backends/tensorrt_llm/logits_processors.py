"""Logits post-processors that `model.yaml` names and requests choose from (TL-03)."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from penstock.backend import InvalidRequestError, ModelLoadError

SECTION = "logits_post_processors"


class LogitsProcessors:
    """Processors by name, imported once."""

    def __init__(self, specifications: Mapping[str, Any] | None) -> None:
        """Import them all; raises `ModelLoadError` that names the one at fault."""
        given = specifications or {}
        self._found = {name: _imported(name, text) for name, text in given.items()}

    def find(self, name: str) -> Any:
        """The processor; `None` for an empty name. Raises `InvalidRequestError` for others."""
        if not name:
            return None
        if name not in self._found:
            raise InvalidRequestError(
                f"Unknown logits post-processor '{name}'. Processors must be declared under "
                f"'{SECTION}' in model.yaml. Available: {sorted(self._found) or 'none configured'}"
            )
        return self._found[name]


def _imported(name: str, specification: Any) -> Any:
    module, attributes = _parts(name, specification)
    try:
        found: Any = import_module(module)
    except Exception as error:  # a module of the user's raises anything
        raise _refusal(name, f"cannot import module '{module}': {error}") from error
    for attribute in attributes:
        if not hasattr(found, attribute):
            raise _refusal(name, f"module '{module}' has no attribute '{'.'.join(attributes)}'")
        found = getattr(found, attribute)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise _refusal(name, f"'{specification}' cannot be made: {error}") from error
    if not callable(found):
        kind = type(found).__name__
        raise _refusal(name, f"'{specification}' resolved to a non-callable {kind}")
    try:
        pickle.dumps(found)
    except Exception as error:  # the engine's workers get it with each request
        raise _refusal(name, f"processor is not picklable ({error})") from error
    return found


def _parts(name: str, specification: Any) -> tuple[str, list[str]]:
    module, colon, path = str(specification).partition(":")
    attributes = path.split(".")
    if not isinstance(specification, str) or not (module and colon and all(attributes)):
        raise ModelLoadError(
            f"{SECTION}['{name}'] must be an import spec of the form 'module.path:attribute', "
            f"got {specification!r}"
        )
    return module, attributes


def _refusal(name: str, complaint: str) -> ModelLoadError:
    return ModelLoadError(f"{SECTION}['{name}']: {complaint}")
