"""`Releases` in this process: promotions and guards at times of the test's choice, and watchers."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from access.kept import Kept
from models.releases.fake_models import Models, answered
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InvalidRequestError,
    NotFoundError,
)
from penstock.metrics.exposition import render
from penstock.models.releases.releases import Releases
from penstock.models.serving.catalog import ModelCatalog
from penstock.telemetry.server_families import alias_families


def _releases() -> tuple[Releases, Models]:
    models = Models()
    return Releases(ModelCatalog(), models.find), models


def _fields(old: float, **more: Any) -> dict[str, Any]:
    targets = [{"model": "old", "weight": old}, {"model": "new", "weight": 100 - old}]
    return {"targets": targets, **more}


def _weights(releases: Releases) -> list[float]:
    return [one.weight for one in releases.aliases()[0].targets]


async def test_a_promotion_takes_its_steps_in_time() -> None:
    releases, _ = _releases()
    releases.set("alias", _fields(100))
    now = time.monotonic()
    releases.promote("alias", {"steps": [5, 50, 100], "every": 60})
    assert _weights(releases) == [95, 5]
    releases.watch(now + 50)
    assert _weights(releases) == [95, 5]
    releases.watch(now + 70)
    assert _weights(releases) == [50, 50]
    assert releases.shown("alias")["promotion"]["step"] == 2
    releases.watch(now + 100)
    releases.watch(now + 10_000)
    assert _weights(releases) == [0, 100]
    releases.watch(now + 20_000)
    assert len(releases.history("alias")) == 4


async def test_a_promotion_waits_for_its_target_and_its_requests() -> None:
    releases, models = _releases()
    releases.set("alias", _fields(100, guard={"min_requests": 3, "window": 3600}))
    now = time.monotonic()
    releases.promote("alias", {"steps": [50, 100], "every": 1})
    model = releases.find("alias")
    assert model is not None
    releases.watch(now + 100)
    assert _weights(releases) == [50, 50]
    while model.windows["new"].requests < 3:
        await answered(model)
    models.away.add("new")
    releases.watch(now + 200)
    assert _weights(releases) == [50, 50]
    models.away.clear()
    releases.watch(now + 300)
    assert _weights(releases) == [0, 100]


def test_a_step_waits_until_the_latency_of_its_target_can_be_judged() -> None:
    """A slow target answers few, and would have had all requests before it is known to be slow."""
    releases, _ = _releases()
    guard = {"min_requests": 10, "max_p99_ratio": 3, "window": 3600}
    releases.set("alias", _fields(100, guard=guard))
    now = time.monotonic()
    releases.promote("alias", {"steps": [50, 100], "every": 1})
    assert releases.shown("alias")["promotion"]["needed"] == 100
    model = releases.find("alias")
    assert model is not None
    for _ in range(100):
        model.windows["old"].add(now, 0.01, failed=False)
    for _ in range(99):
        model.windows["new"].add(now, 0.1, failed=False)
    model.windows["new"].add(now, 0.1, failed=True)
    releases.watch(now + 2)
    assert _weights(releases) == [50, 50]
    model.windows["new"].add(now, 0.1, failed=False)
    releases.watch(now + 3)
    assert _weights(releases) == [100, 0]
    assert releases.history("alias")[-1].cause == "latency"


async def test_what_goes_back_says_why_to_all() -> None:
    releases, models = _releases()
    with releases.watching() as changes, releases.watching(lambda name: False) as others:
        releases.set("alias", _fields(50, guard={"min_requests": 5, "max_error_rate": 0.1}))
        models.fail("new")
        model = releases.find("alias")
        assert model is not None
        while model.windows["new"].requests < 5:
            await asyncio.gather(answered(model), return_exceptions=True)
        releases.watch(time.monotonic())
        assert _weights(releases) == [100, 0]
        told = [changes.get_nowait() for _ in range(changes.qsize())]
        assert others.empty()
    assert [name for name, _ in told] == ["alias", "alias"]
    assert told[-1][1]["cause"] == "error_rate"
    assert releases.history("alias")[-1].why.startswith("'new' failed 5 of 5 requests within 60 s")
    page = "".join(render(alias_families(releases)))
    assert 'penstock_alias_rollbacks_total{alias="alias",cause="error_rate"} 1' in page
    assert 'penstock_alias_failures_total{alias="alias",target="new"} 5' in page
    releases.roll_back("alias")
    releases.remove("alias")
    assert 'cause="request"' in "".join(render(alias_families(releases)))


async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "aliases.toml")
    releases = Releases(ModelCatalog(), Models().find, [tmp_path])
    await releases.read_files()
    (line,) = caplog.messages
    assert "aliases.toml is not taken: " in line
    assert "it is not a file" in line


async def test_what_no_request_asked_for_is_in_the_audit_log(tmp_path: Path) -> None:
    models, kept = Models(), Kept()
    releases = Releases(ModelCatalog(), models.find, [tmp_path])
    releases.audit = kept
    file = tmp_path / "aliases.toml"
    file.write_text('[declared]\ntargets = [{ model = "old" }]\n')
    await releases.read_files()
    file.write_text("")
    await releases.read_files()
    releases.set("alias", _fields(100))
    now = time.monotonic()
    releases.promote("alias", {"steps": [5, 50, 100], "every": 60})
    releases.watch(now + 70)
    releases.set("alias", _fields(50, guard={"min_requests": 5, "max_error_rate": 0.1}))
    models.fail("new")
    model = releases.find("alias")
    assert model is not None
    while kept.events[-1].cause != "guard":
        await asyncio.gather(answered(model), return_exceptions=True)
        releases.watch(time.monotonic())
    assert kept.by_server == [
        ("", "alias", "declared", "OK", "file"),
        ("", "alias", "declared", "OK", "file"),
        ("", "alias", "alias", "OK", "promotion"),
        ("", "alias", "alias", "OK", "guard"),
    ]
    assert [event.detail for event in kept.events][1::2] == ["removed", "error_rate"]


async def test_a_shadow_is_on_the_page_and_ends_with_its_alias() -> None:
    releases, models = _releases()
    async with releases.running():
        releases.set("alias", _fields(100, shadow={"model": "dark"}))
        model = releases.find("alias")
        assert model is not None
        models.models["dark"].holds = True
        await answered(model)
        assert 'outcome="dropped"} 0' in "".join(render(alias_families(releases)))
        shadow = model.shadow
        assert shadow is not None
        releases.set("alias", _fields(100))
        releases.set("alias", _fields(100, shadow={"model": "dark", "percent": 50}))
        releases.remove("alias")
    assert shadow.counts.outcomes == {"dropped": 1}
    assert not [*alias_families(releases)]


def test_watchers_that_do_not_read_lose_the_first() -> None:
    releases, _ = _releases()
    with releases.watching() as changes:
        for _ in range(1002):
            releases.set("alias", _fields(100))
        assert changes.qsize() == 1000


@pytest.mark.parametrize(
    ("name", "fields", "error"),
    [
        ("old", {"targets": [{"model": "new"}]}, AlreadyExistsError),
        ("dark", _fields(100), AlreadyExistsError),
        ("x", {"targets": [{"model": "alias"}]}, InvalidRequestError),
        ("x", {"targets": [{"model": "none"}]}, InvalidRequestError),
        ("x", {"targets": [{"model": "old"}], "shadow": {"model": "none"}}, InvalidRequestError),
        ("x/y", _fields(100), InvalidRequestError),
    ],
)
def test_what_cannot_be_is_refused(
    name: str, fields: dict[str, Any], error: type[InferenceError]
) -> None:
    releases, _ = _releases()
    releases.set("alias", _fields(100))
    with pytest.raises(error):
        releases.set(name, fields)
    assert [one["name"] for one in releases.listed()] == ["alias"]


def test_what_is_not_there() -> None:
    releases, models = _releases()
    for call in (releases.shown, releases.remove, releases.roll_back):
        with pytest.raises(NotFoundError):
            call("never")
    with pytest.raises(NotFoundError):
        releases.promote("never", {})
    releases.set("alias", _fields(100))
    models.away.add("new")
    with pytest.raises(InvalidRequestError, match="'new' does not serve"):
        releases.promote("alias", {})
