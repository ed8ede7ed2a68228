"""Keywords of `AsyncEngineArgs` from `model.json`, converted by its type annotations."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from penstock.backend import ModelLoadError, suggestion
from penstock_backends.vllm.arguments.engine_args import EngineArguments

logger = logging.getLogger(__name__)

_OPPOSITES = {"disable_log_requests": "enable_log_requests"}
"""Arguments that the samples of Triton's vLLM backend have, and vLLM has no longer, by the one that
says the opposite today."""

_SIMILARITY = 0.6
"""Of a name that is suggested: words are often in another order (`max_seq_num`)."""

_BOOLEANS = {"true": True, "false": False}


def engine_keywords(arguments: EngineArguments) -> dict[str, Any]:
    """The keywords, checked and converted. Imports vLLM; raises `ModelLoadError`.

    Objects become vLLM's own classes, as on its command line: `AsyncEngineArgs` by itself converts
    only some, and the others fail late.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    types = {field.name: field.type for field in fields(AsyncEngineArgs)}
    arguments = with_present_names(arguments, types)
    check_names(arguments, types)
    return {
        name: _converted(arguments, name, value, set(_alternatives(types[name])))
        for name, value in arguments.values.items()
    }


def with_present_names(arguments: EngineArguments, known: Collection[str]) -> EngineArguments:
    """The arguments, of which those that vLLM has turned into their opposites go by its name today.

    Raises `ModelLoadError` for a value that is not a boolean. Where both names are given, the one
    of today counts.
    """
    values = dict(arguments.values)
    for former, present in _OPPOSITES.items():
        if former in values and former not in known and present in known:
            text = str(values.pop(former)).lower()
            if text not in _BOOLEANS:
                raise ModelLoadError(
                    f"engine argument '{former}' in '{arguments.path}' must be true or false"
                )
            values.setdefault(present, not _BOOLEANS[text])
            logger.warning(
                "'%s' in '%s' is '%s' in this vLLM, here %s",
                former,
                arguments.path,
                present,
                json.dumps(values[present]),
            )
    return replace(arguments, values=values)


def check_names(arguments: EngineArguments, known: Iterable[str]) -> None:
    """Raise `ModelLoadError` for an argument that vLLM does not know."""
    names = list(known)
    for name in arguments.values:
        if name not in names:
            nearest = suggestion(name, names, _SIMILARITY)
            raise ModelLoadError(f"unknown engine argument '{name}' in '{arguments.path}'{nearest}")


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types of a union; of annotations that are text, as some are, the text."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _alternatives(one)
    else:
        yield annotation


def _converted(arguments: EngineArguments, name: str, value: Any, types: set[Any]) -> Any:
    try:
        if isinstance(value, dict):
            return _as_config(value, types)
        return _as_number(value, types) if isinstance(value, str) else value
    except ValueError as error:  # pydantic's are of this class
        raise ModelLoadError(
            f"engine argument '{name}' in '{arguments.path}' is not valid: {error}"
        ) from error


def _as_config(value: dict[str, Any], types: set[Any]) -> Any:
    """An object as the class that the argument has; unchanged if it has none."""
    config = next((one for one in types if is_dataclass(one)), None)
    if config is None:
        return value
    return import_module("pydantic").TypeAdapter(config).validate_json(json.dumps(value))


def _as_number(text: str, types: set[Any]) -> Any:
    """A text as the boolean or number that the argument has to be; else vLLM judges it."""
    if str in types or not types & {bool, int, float}:
        return text
    if bool in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    for kind in (int, float):
        if kind in types:
            try:
                return kind(text)
            except ValueError:
                continue
    return text
