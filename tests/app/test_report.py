"""The start-up report in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.app.report import show_backends, show_options
from penstock.server.answers import ServerMetadata
from penstock.settings import (
    CacheSettings,
    LogSettings,
    ModelControlMode,
    RepositorySettings,
    Settings,
)

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


@pytest.mark.parametrize(("file", "widest"), [("", 60), ("server.log", 135)])
def test_tables_fit_a_terminal_unless_they_go_to_a_file(
    file: str, widest: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    settings = replace(SETTINGS, logging=LogSettings(file=file))
    with caplog.at_level("INFO"):
        show_backends({"python": "backend.py"}, settings)
    assert max(map(len, caplog.messages[-1].splitlines())) == widest


@pytest.mark.contract("L-07")
def test_the_table_of_options_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    repository = RepositorySettings(
        paths=("models", "more"),
        control_mode=ModelControlMode.EXPLICIT,
        startup_models=("b", "a"),
        auto_complete_config=False,
    )
    cache = CacheSettings(config={"redis": {"password": "sesame"}})
    with caplog.at_level("INFO"):
        show_options(
            Settings(repository=repository, cache=cache), ServerMetadata("triton", "1", ("x", "y"))
        )
    (text,) = caplog.messages
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert [row for row in rows if row] == [
        ["Option", "Value"],
        ["server_id", "triton"],
        ["server_version", "1"],
        ["server_extensions", "x y"],
        ["model_repository_path[0]", "models"],
        ["model_repository_path[1]", "more"],
        ["model_control_mode", "MODE_EXPLICIT"],
        ["startup_models_0", "a"],
        ["startup_models_1", "b"],
        ["strict_model_config", "1"],
        ["model_config_name", ""],
        ["rate_limit", "OFF"],
        ["min_supported_compute_capability", "6.0"],
        ["strict_readiness", "1"],
        ["exit_timeout", "30"],
        ["cache_enabled", "1"],
    ]
    assert "sesame" not in text
