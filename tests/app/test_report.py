"""The start-up report in the log."""

from __future__ import annotations

import pytest

from penstock.app.report import show_backends
from penstock.settings import RepositorySettings, Settings

SETTINGS = Settings(repository=RepositorySettings(paths=("models",)))


@pytest.mark.contract("M-18")
def test_the_table_of_repository_agents_comes_first_and_is_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        show_backends({"python": "backend.py"}, SETTINGS)
    agents, backends = caplog.messages
    assert agents.strip().splitlines() == [
        "+------------------+------+",
        "| Repository Agent | Path |",
        "+------------------+------+",
        "+------------------+------+",
    ]
    assert "| python  | backend.py |" in backends
