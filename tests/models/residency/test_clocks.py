"""The clock of the day is set under a server: residency and releases go by another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from loadtest.soak.faults import ClockJumps
from tritonclient.utils import InferenceServerException

from harness.serving import wait_until
from models.residency.repository import Repository
from models.residency.test_demand import Asked, Start, repository, start  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

_BREAKS = "\n    def initialize(self, args): raise RuntimeError('it breaks')\n"
_ALIAS = {
    "targets": [{"model": "stays", "weight": 100}, {"model": "canary", "weight": 0}],
    "guard": {"min_requests": 5, "max_error_rate": 0.01, "max_p99_ratio": 100, "window": 600},
}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that holds the seconds by which the clock of a server that starts now is wrong."""
    fault = ClockJumps(tmp_path)
    if missing := fault.missing():
        pytest.skip(f"setting the clock of a server needs the {missing}")
    for name, value in fault.environment().items():
        monkeypatch.setenv(name, value)
    return tmp_path / "offset"


def _set(clock: Path, seconds: int) -> None:
    with clock.open("r+b") as file:
        file.write(seconds.to_bytes(8, "little", signed=True))


def test_a_clock_that_jumps_unloads_promotes_and_fails_nothing(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
    clock: Path,
) -> None:
    for name in ("stays", "canary"):
        repository.add(name, idle_seconds="300", min_resident_seconds="60")
    repository.add("goes", idle_seconds="0.5")
    repository.add("breaks")
    model = repository.path / "breaks" / "1" / "model.py"
    model.write_text(model.read_text() + _BREAKS)
    with start("--demand-load-timeout-secs=200") as server:
        for name in ("stays", "canary"):
            assert server.answer(name) == 1
        server.post("/v2/repository/aliases/alias", _ALIAS)
        plan = {"target": "canary", "steps": [50, 100], "every": 300}
        server.post("/v2/repository/aliases/alias/promote", plan)
        for seconds in (600, -600):
            _set(clock, seconds)
            assert {server.answer("alias", x) for x in range(20)} == {*range(1, 21)}
            assert server.answer("goes") == 1
            wait_until(lambda: server.states()["goes"] == "on demand")  # somebody has looked
        assert {"stays", "canary"} <= server.ready()
        shown = json.loads(server.get("/v2/repository/aliases/alias")[1])
        assert [change.get("cause") for change in shown["history"]] == [None, None]
        assert shown["promotion"]["step"] == 1
        _is_not_tried_again(server, repository.loads, clock)


def _is_not_tried_again(server: Asked, loads: Callable[[], list[str]], clock: Path) -> None:
    """A load that failed waits for its time, however late the day is said to be."""
    with pytest.raises(InferenceServerException, match="it breaks"):
        server.answer("breaks")
    tried = loads().count("breaks")
    _set(clock, 600)
    with pytest.raises(InferenceServerException, match="it breaks"):
        server.answer("breaks")
    assert loads().count("breaks") == tried
