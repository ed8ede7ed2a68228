"""A server with two models, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tritonclient.grpc as grpcclient

from harness.serving import serving
from models.releases.calls import Releases
from models.releases.repository import write_models


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    folder = tmp_path_factory.mktemp("releases")
    repository = folder / "models"
    write_models(repository)
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with serving(repository, folder / "log", *flags) as served:
        yield Releases(served, repository)


@pytest.fixture
def client(releases: Releases) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(releases.served.grpc) as made:
        yield made
