"""The signatures of the API, and a record of the calls that were made."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

RELEASE = "PENSTOCK_STAND_IN_TRTLLM"
"""Environment variable: the line of releases whose API is stood in for, `1.4` by default."""

CALLS: list[tuple[str, str, tuple[str, ...]]] = []
"""Class, method and argument names of each call."""

Call = TypeVar("Call", bound=Callable[..., Any])


@lru_cache
def classes(release: str) -> Any:
    path = Path(__file__).parents[2] / f"api-{release}.json"
    return json.loads(path.read_text(encoding="utf-8"))["classes"]


def release() -> str:
    return os.environ.get(RELEASE, "1.4")


def signature(owner: str, method: str) -> inspect.Signature:
    """The signature by the facts: all by keyword. Raises `AttributeError` for no such method."""
    methods = classes(release())[owner]["methods"]
    if method not in methods:
        raise AttributeError(f"{owner} has no {method} in {release()}")
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=about.get("default", empty)
            )
            for name, about in methods[method]["parameters"].items()
        ]
    )


def bound(owner: str, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with defaults; raises `TypeError` for names that the API does not have."""
    try:
        arguments = signature(owner, method).bind(**given)
    except TypeError as error:
        raise TypeError(f"{owner}.{method}: {error}") from error
    CALLS.append((owner, method, tuple(given)))
    arguments.apply_defaults()
    return dict(arguments.arguments)


def checked(owner: str) -> Callable[[Call], Call]:
    """A decorator of methods that are called with what `bound` makes of their arguments."""

    def decorate(method: Call) -> Call:
        @wraps(method)
        def call(self: Any, **given: Any) -> Any:
            return method(self, **bound(owner, method.__name__, given))

        return call  # type: ignore[return-value]

    return decorate
