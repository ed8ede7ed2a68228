"""Single versions are loaded and unloaded: the parameter `versions` of both requests (S126)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2

from harness.serving import Served, serving, wait_until
from models.releases.repository import write_models


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    repository = tmp_path / "models"
    write_models(repository)
    for version in ("2", "3"):
        (repository / "old" / version).mkdir()
        model = (repository / "old" / "1" / "model.py").read_text()
        (repository / "old" / version / "model.py").write_text(model)
    flags = ("--model-control-mode=explicit", "--load-model=old")
    with serving(repository, tmp_path / "log", *flags) as server:
        yield server


def _ask(served: Served, verb: str, versions: Any) -> int | str:
    """The status of a request to load or unload versions; the error where it is refused."""
    body = json.dumps({"parameters": {"versions": versions}}).encode()
    url = f"http://{served.http}/v2/repository/models/old/{verb}"
    try:
        with urllib.request.urlopen(url, body) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return str(json.load(error)["error"])


def _ready(served: Served) -> list[str]:
    with grpcclient.InferenceServerClient(served.grpc) as client:
        return [v for v in "123" if client.is_model_ready("old", v)]


def test_a_version_comes_beside_others_and_goes_alone(served: Served) -> None:
    assert _ready(served) == ["3"]
    (before,) = served.family()[-1:]
    assert _ask(served, "load", "1") == 200
    assert _ready(served) == ["1", "3"]
    assert before in served.family()  # nothing was loaded again
    assert _ask(served, "load", "2") == 200
    assert _ask(served, "unload", "1,3") == 200
    wait_until(lambda: _ready(served) == ["2"])
    assert _ask(served, "unload", "3") == 200  # which is not there
    assert _ready(served) == ["2"]
    assert _ask(served, "unload", "2") == 200
    wait_until(lambda: _ready(served) == [])


def test_over_grpc(served: Served) -> None:
    text = service_pb2.ModelRepositoryParameter(string_param="1")
    parameters = {"versions": text}
    with grpcclient.InferenceServerClient(served.grpc) as client:
        stub = client._client_stub
        load = service_pb2.RepositoryModelLoadRequest(model_name="old", parameters=parameters)
        stub.RepositoryModelLoad(load)
        assert _ready(served) == ["1", "3"]
        gone = service_pb2.RepositoryModelUnloadRequest(model_name="old", parameters=parameters)
        stub.RepositoryModelUnload(gone)
    wait_until(lambda: _ready(served) == ["3"])


def test_a_version_that_is_not_there_changes_nothing(served: Served) -> None:
    assert "model 'old' has no version 7" in str(_ask(served, "load", "7"))
    assert "numbers with commas, not 'x'" in str(_ask(served, "load", "x"))
    assert "numbers with commas, not '-1'" in str(_ask(served, "unload", "-1"))
    assert _ready(served) == ["3"]


def test_a_plain_load_goes_by_the_policy_again(served: Served) -> None:
    assert _ask(served, "load", "1") == 200
    with grpcclient.InferenceServerClient(served.grpc) as client:
        client.load_model("old")
    wait_until(lambda: _ready(served) == ["3"])
