"""The function that upstream's own model makes arguments with; no promised name."""

from __future__ import annotations

from typing import Any


def update_llm_args_with_extra_dict(
    llm_args: dict[str, Any], llm_args_dict: dict[str, Any]
) -> dict[str, Any]:
    return {**llm_args, **llm_args_dict}
