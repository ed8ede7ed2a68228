"""An instance with cores of its own has them from its start to its stop."""

from __future__ import annotations

import os
from collections.abc import Collection

import pytest

from hosting.puppets import Puppets
from penstock.core.errors import InferenceError
from penstock.core.placement import Placement
from penstock.system.own_cores import OwnCores

pytestmark = pytest.mark.interpreted("its recorder derives from a class that would be compiled")

CORE = max(os.sched_getaffinity(0))
OWN = Placement((CORE, CORE))


class Recorder(OwnCores):
    """Binds nothing, but knows what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, list[int]]] = []

    def take(self, cores: Collection[int]) -> None:
        self.told.append(("take", list(cores)))

    def give_back(self, cores: Collection[int]) -> None:
        self.told.append(("give back", list(cores)))


@pytest.mark.slow
async def test_cores_are_taken_from_start_to_stop(puppets: Puppets) -> None:
    cores = Recorder()
    instance = await puppets.start(placement=OWN, own_cores=cores)
    assert instance.pid is not None
    assert os.sched_getaffinity(instance.pid) == {CORE}
    assert cores.told == [("take", [CORE])]
    await instance.stop()
    await instance.stop()
    assert cores.told == [("take", [CORE]), ("give back", [CORE])]


@pytest.mark.slow
async def test_who_does_not_start_gives_them_back(puppets: Puppets) -> None:
    cores = Recorder()
    with pytest.raises(InferenceError):
        await puppets.start(placement=OWN, own_cores=cores, target="nowhere:Nothing")
    assert cores.told == [("take", [CORE]), ("give back", [CORE])]


@pytest.mark.slow
async def test_a_placement_alone_takes_nothing(puppets: Puppets) -> None:
    cores = Recorder()
    await puppets.start(own_cores=cores)
    assert cores.told == []
