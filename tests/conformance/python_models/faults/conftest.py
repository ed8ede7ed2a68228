"""Models that are about to fail, beside one that nothing must happen to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.faults.models import Victim


@pytest.fixture
def victim(client: Client, repository: Path) -> Victim:
    return Victim(client, repository, "victim")


@pytest.fixture
def hurried(client: Client, repository: Path) -> Victim:
    """A victim with two seconds for an execution."""
    return Victim(client, repository, "hurried")


@pytest.fixture(autouse=True)
def _others_are_unaffected(client: Client) -> Iterator[None]:
    """Whatever a test does to its models, another one has never stopped to answer."""
    before = [client.begin("witness", {"X": floats(n)}) for n in range(3)]
    yield
    after = client.begin("witness", {"X": floats(3)})
    assert [order.result()["Y"][0] for order in (*before, after)] == [0, 1, 2, 3]
