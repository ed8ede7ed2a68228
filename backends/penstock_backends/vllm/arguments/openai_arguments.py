"""`OpenAiArguments`: the object `openai` of `model.json`, the arguments of vLLM's front end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.backend import ModelLoadError, suggestion

KEY: Final = "openai"

FRONTEND: Final = (
    "chat_template",
    "chat_template_content_format",
    "trust_request_chat_template",
    "trust_request_mm_kwargs",
    "default_chat_template_kwargs",
    "response_role",
    "return_tokens_as_token_ids",
    "enable_auto_tool_choice",
    "exclude_tools_when_tool_choice_none",
    "tool_call_parser",
    "tool_parser_plugin",
    "tool_strict_level",
    "enable_prompt_tokens_details",
    "enable_per_request_metrics",
    "enable_force_include_usage",
    "enable_scale_out",
    "fingerprint_mode",
    "fingerprint_value",
)
"""Arguments of vLLM's front end that a model may have; others are the server's own business."""

_ENGINE: Final = ("reasoning_parser", "reasoning_parser_plugin")
_LENGTH: Final = "default_max_tokens"
_UNKNOWN: Final = "unknown_fields"
_FILES: Final = ("chat_template", "tool_parser_plugin")


@dataclass(frozen=True, slots=True)
class OpenAiArguments:
    """Front-end `values` by vLLM's names; `enabled` is false for `"openai": false`.

    `ignores_unknown` says whether unknown fields of requests are left to vLLM, which ignores them.
    """

    enabled: bool = True
    values: dict[str, Any] = field(default_factory=dict)
    ignores_unknown: bool = False

    @property
    def options(self) -> list[str]:
        """The values as vLLM's command line has them."""
        found: list[str] = []
        for name, value in self.values.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                found.append(f"--{option}" if value else f"--no-{option}")
            elif value is not None:
                text = value if isinstance(value, str) else json.dumps(value)
                found.append(f"--{option}={text}")
        return found


def take_openai(engine: dict[str, Any], path: Path) -> OpenAiArguments:
    """Take the object out of the engine's arguments, which get what of it is the engine's.

    `path` is that of `model.json`. Raises `ModelLoadError` that names what is wrong.
    """
    given = engine.pop(KEY, None)
    if given is False:
        return OpenAiArguments(enabled=False)
    if given is None or given is True:
        return OpenAiArguments()
    _check(given, path)
    for name in _ENGINE:
        if given.get(name) is not None:
            engine.setdefault(name, given[name])
    _limit_answers(engine, given.get(_LENGTH), path)
    values = {name: value for name, value in given.items() if name in FRONTEND}
    for name in _FILES:
        inside = path.parent / values[name] if isinstance(values.get(name), str) else None
        if inside is not None and _exists(inside):
            values[name] = str(inside)
    return OpenAiArguments(values=values, ignores_unknown=given.get(_UNKNOWN) == "ignore")


def _check(given: Any, path: Path) -> None:
    """Raise `ModelLoadError` for what is not an object, or has names that are not known."""
    if not isinstance(given, dict):
        raise ModelLoadError(f"'{KEY}' in '{path}' must be an object, or false")
    known = (*FRONTEND, *_ENGINE, _LENGTH, _UNKNOWN)
    for name in given:
        if name not in known:
            nearest = suggestion(name, known)
            raise ModelLoadError(f"unknown argument '{name}' in '{KEY}' of '{path}'{nearest}")
    if given.get(_UNKNOWN, "refuse") not in ("refuse", "ignore"):
        raise ModelLoadError(f"'{_UNKNOWN}' in '{KEY}' of '{path}' must be 'refuse' or 'ignore'")


def _limit_answers(engine: dict[str, Any], length: Any, path: Path) -> None:
    """Limit answers for which a request sets no length; vLLM reads it from these defaults."""
    if length is None:
        return
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ModelLoadError(f"'{_LENGTH}' in '{KEY}' of '{path}' must be a number above 0")
    defaults = engine.get("override_generation_config") or {}
    engine["override_generation_config"] = {"max_new_tokens": length, **defaults}


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a template, not a name
        return False
