"""`OpenAiSettings`: the object `openai` of a model's `model.json`, for models without a kit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from penstock.backend import ModelLoadError, suggestion
from penstock_backends.openai_kit.parsers.reasoning import REASONING_PARSERS
from penstock_backends.openai_kit.parsers.tool_parsers import TOOL_PARSERS


@dataclass(frozen=True, slots=True)
class OpenAiSettings:
    """Settings of OpenAI's API of one model, under the names of vLLM's options.

    `chat_template` is a file of the version's directory, or the template itself.
    `default_max_tokens` holds where a request sets no length; without it an answer may take what
    the context leaves. `unknown_fields` is `refuse` or `ignore`.
    """

    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None
    default_max_tokens: int | None = None
    trust_request_chat_template: bool = False
    unknown_fields: str = "refuse"


def read_openai_settings(given: Any) -> OpenAiSettings:
    """Check the object; raises `ModelLoadError` that names the key."""
    if given is None:
        return OpenAiSettings()
    if not isinstance(given, Mapping):
        raise ModelLoadError(f"key 'openai' must be an object, not {json.dumps(given)}")
    for key, value in given.items():
        if key not in _RULES:
            raise ModelLoadError(
                f"unknown key '{key}' in 'openai'; known are {', '.join(_RULES)}"
                f"{suggestion(str(key), _RULES)}"
            )
        rule, wanted = _RULES[key]
        if value is not None and not rule(value):
            raise ModelLoadError(f"'{key}' in 'openai' must be {wanted}, not {json.dumps(value)}")
    return OpenAiSettings(**{key: value for key, value in given.items() if value is not None})


_Rule = tuple[Callable[[Any], bool], str]


def _one_of(names: Mapping[str, Any] | tuple[str, ...]) -> _Rule:
    return lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}"


_RULES: dict[str, _Rule] = {
    "tool_call_parser": _one_of(TOOL_PARSERS),
    "reasoning_parser": _one_of(REASONING_PARSERS),
    "chat_template": (lambda value: isinstance(value, str) and value != "", "a template"),
    "default_max_tokens": (lambda value: type(value) is int and value > 0, "a positive integer"),
    "trust_request_chat_template": (lambda value: isinstance(value, bool), "true or false"),
    "unknown_fields": _one_of(("refuse", "ignore")),
}
assert set(_RULES) == {field.name for field in fields(OpenAiSettings)}
