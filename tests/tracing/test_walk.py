"""The traced pipeline of the examples, from three clients to Jaeger's query API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from programs.places import find

_ROOT = Path(__file__).parents[2]
_JAEGER = find("jaeger")


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.contract("T-11", "T-13", "T-16", "T-17", "T-18", "T-23", "E-16", "GT-19")
@pytest.mark.needs(
    "jaeger", "" if _JAEGER else "no Jaeger: python tests/programs/install.py jaeger"
)
def test_every_span_is_where_it_should_be(tmp_path: Path) -> None:
    picture = tmp_path / "trace.svg"
    command = [sys.executable, "-m", "examples.traced_pipeline.walk", f"--picture={picture}"]
    walked = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "every span, event and link is where it should be" in walked.stdout
    assert "search the index" in picture.read_text()
