"""Fields of OpenAI's API that engines do not have, and the values of them that ask for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

WITHOUT_EFFECT: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": (),
    "background": (False,),
    "background_options": (),
    "access_programs": (),
    "context_management": (),
    "conversation": (),
    "function_call": ("none",),
    "functions": ([],),
    "image": (),
    "logit_bias": ({},),
    "max_tool_calls": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "previous_response_id": (),
    "priority": (0,),
    "prompt_cache_options": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "truncation": ("disabled",),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that would have no effect, and the values that ask for none."""

_NOTES: Final = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
)
"""Fields that only inform the server: they ask for nothing, whatever their value is."""


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a field that an engine does not have asks it for nothing."""
    return value is None or name in _NOTES or value in WITHOUT_EFFECT.get(name, ())
