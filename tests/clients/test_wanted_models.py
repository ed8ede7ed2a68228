"""What the clients say of the server that they want, before they ask it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from clients.languages import CLIENTS, EXAMPLES, Example


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.language)
def test_a_client_says_which_models_it_wants(example: Example, tmp_path: Path) -> None:
    """A copy that has not been built has nothing to run."""
    script = shutil.copy(CLIENTS / example.folder / example.run, tmp_path)
    done = subprocess.run([script, "localhost:1"], capture_output=True, text=True, check=False)
    assert "penstock serve --model-repository=clients/models" in done.stderr.splitlines()[0]
    assert done.returncode != 0
