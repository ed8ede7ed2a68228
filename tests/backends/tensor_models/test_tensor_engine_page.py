"""The page on tensor engines, followed to the letter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = (Path(__file__).parents[3] / "docs" / "tensor-engines.md").read_text("utf-8")
_FILES = dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)```$", _PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.slow
def test_its_own_tests_pass(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_engine_has_at_most_80_lines() -> None:
    assert len(_FILES["penstock_linear.py"].splitlines()) <= 80
