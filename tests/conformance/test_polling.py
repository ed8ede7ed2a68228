"""A server that follows its repository, as the real one was seen to."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.recorded import answers, needs_answers, write_models
from harness.serving import Served, serving, wait_until

pytestmark = [needs_answers, pytest.mark.contract("M-03", "X-20")]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Models to be put into the repository."""
    return write_models("good", tmp_path / "models")


@pytest.fixture
def repository(tmp_path: Path, models: Path) -> Path:
    folder = tmp_path / "repository"
    shutil.copytree(models / "identity_fp32", folder / "identity_fp32")
    return folder


@pytest.fixture
def server(tmp_path: Path, repository: Path) -> Iterator[Served]:
    options = ("--model-control-mode=poll", "--repository-poll-secs=1")
    with serving(repository, tmp_path / "log", *options) as server:
        yield server


def asked(server: Served, path: str, body: bytes | None = None) -> tuple[str, Any]:
    """Status and JSON of an answer."""
    request = urllib.request.Request(f"http://{server.http}/v2/{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.status), json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return str(error.code), json.loads(error.read())


def _index(server: Served) -> tuple[str, Any]:
    return asked(server, "repository/index", b"{}")


def recorded(name: str) -> tuple[str, Any]:
    answer = answers("options.json")[name]
    return answer["status"], json.loads(answer["body"] or "null")


def test_models_follow_their_files(server: Served, repository: Path, models: Path) -> None:
    """Added, edited, broken and removed, in this order."""
    config = repository / "simple" / "config.pbtxt"
    shutil.copytree(models / "simple", repository / "simple")
    added = recorded("poll: after adding simple")
    wait_until(lambda: asked(server, "repository/index", b"{}") == added)
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 4"))
    wait_until(lambda: asked(server, "models/simple/config")[1]["max_batch_size"] == 4)
    assert asked(server, "models/simple/config") == recorded("poll: after editing simple")
    config.write_text("broken")
    # Told here, also beside what serves on.
    wait_until(lambda: 'no field named \\"broken\\"' in json.dumps(_index(server)))
    status, index = _index(server)
    assert [bool(version.pop("reason", "")) for version in index] == [False, True]
    assert (status, index) == recorded("poll: after breaking simple")
    assert "Poll failed for model directory 'simple'" in server.log.read_text()
    still = recorded("poll: broken simple still serves")
    assert asked(server, "models/simple/ready")[0] == still[0]
    shutil.rmtree(repository / "simple")
    wait_until(lambda: asked(server, "models/simple/ready")[0] == "400")


def test_models_are_not_loaded_by_clients(server: Served) -> None:
    answer = asked(server, "repository/models/identity_fp32/load", b"")
    assert answer == recorded("poll: load is refused")
