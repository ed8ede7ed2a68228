"""Log messages about models that cannot be read, as recorded from Triton."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.recorded import log, needs_answers, write_models
from models.repository.files import poll_failure
from penstock.models.repository.repository import ModelRepository

_POLL_FAILURE = re.compile(r"\"(Poll failed for model directory '(\w+)': .*)\"$", re.MULTILINE)


def _recorded() -> dict[str, str]:
    """Log messages about models that could not be polled, with file, line and column."""
    found = _POLL_FAILURE.findall(log("load_errors_server.log"))
    return {name: re.sub("(failed to read text proto from).*", r"\1", text) for text, name in found}


@needs_answers
@pytest.mark.parametrize(("name", "text"), _recorded().items())
def test_log_is_the_recorded_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    repository = ModelRepository([write_models("bad", tmp_path)])
    logged = poll_failure(caplog, repository, name)
    assert re.sub("(failed to read text proto from).*", r"\1", logged) == text
