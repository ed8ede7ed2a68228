"""Refusals in the words of the real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.recorded import answers, needs_answers, write_models
from penstock.core.errors import ConfigError
from penstock.models.config.defaults import normalized
from penstock.models.config.validation import validate
from penstock.models.repository.repository import ModelRepository

REFUSED_ELSEWHERE = ("py_", "auto_", "bad_backend", "warmup_bad")
"""Models with problems that their backend finds, or a request."""


_ADVICE = "none; write 'kind: KIND_CPU' .*"
"""Behind the list of GPUs, where it is empty."""


def _recorded() -> list[tuple[str, str]]:
    """Models that were found wrong when they were loaded, and the reason shown in the index."""
    index = answers("index_after_failed_loads.json").get("index", {})
    models = index.get("response", {}).get("models", [])
    return [
        (model["name"], model["reason"].removeprefix("Invalid argument: "))
        for model in models
        if model.get("state") == "UNAVAILABLE" and not model["name"].startswith(REFUSED_ELSEWHERE)
    ]


@pytest.mark.contract("C-42")
@needs_answers
@pytest.mark.parametrize(("name", "reason"), _recorded())
def test_reason_is_the_recorded_one(tmp_path: Path, name: str, reason: str) -> None:
    config = normalized(ModelRepository([write_models("bad", tmp_path)]).read(name).config)
    with pytest.raises(ConfigError, match=f"^{re.escape(reason)}({_ADVICE})?$"):
        validate(config)
