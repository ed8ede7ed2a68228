"""One server for the tests of this folder, and a client with the stock stubs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.serving import Served, serving
from tracing.served.models import write_models


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of all models, without tracing."""
    folder = tmp_path_factory.mktemp("traced")
    cache = "--cache-config=local,size=1048576"
    with serving(write_models(folder / "models"), folder / "log", cache) as served:
        yield served
