"""Changing how many instances a model has while it serves (contract M-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.repository.version_files import Origin
from penstock.models.serving.instance import ModelInstance
from penstock.models.serving.loaded_model import LoadedModel
from penstock.scheduling import SequenceScheduler


@dataclass(frozen=True, slots=True)
class Resizing:
    """New instances of a model, started already, and those that they take the place of."""

    model: LoadedModel
    config: ModelConfig
    origin: Origin
    kept: Sequence[ModelInstance]
    added: Sequence[ModelInstance]
    removed: Sequence[ModelInstance]

    def commit(self) -> LoadedModel | None:
        """Let the model have its new instances; what is to be stopped is a model of its own."""
        self.model.resize(self.config, self.origin, (*self.kept, *self.added))
        return self._remnant(self.removed, self.model.sequences)

    def discard(self) -> LoadedModel | None:
        """Leave the model as it is; what is to be stopped is a model of its own."""
        return self._remnant(self.added)

    def _remnant(
        self, instances: Sequence[ModelInstance], sequences: SequenceScheduler | None = None
    ) -> LoadedModel | None:
        if not instances:
            return None
        model = self.model
        remnant = _Remnant(instances, sequences)
        return LoadedModel(model.config, model.version, instances, remnant, Statistics())


class _Remnant:
    """In the place of the scheduler of instances that get no requests any more."""

    def __init__(
        self, instances: Sequence[ModelInstance], sequences: SequenceScheduler | None
    ) -> None:
        self._instances = instances
        self._sequences = sequences

    def schedule(self, inference: Inference) -> None:
        raise AssertionError("nobody finds these instances any more")

    def abandon(self, error: InferenceError) -> None:
        """Nothing waits for them."""

    async def drain(self) -> None:
        """Wait until they have ended their sequences and answered what they were given (S-23)."""
        await asyncio.gather(*map(self._spent, self._instances))

    async def _spent(self, instance: ModelInstance) -> None:
        if self._sequences is not None:
            await self._sequences.vacated(instance)
        await instance.answered()


def matched(
    wanted: Sequence[ModelInstance], present: Sequence[ModelInstance]
) -> tuple[list[ModelInstance], list[ModelInstance], list[ModelInstance]]:
    """Which of the present instances stay, which of the wanted ones are new, and which leave.

    One stays where one of its kind is wanted; of several, those of the same name.
    """
    kept, added, left = [], [], list(present)
    for new in sorted(wanted, key=lambda new: new.name not in {old.name for old in present}):
        alike = [old for old in left if old.signature == new.signature]
        alike.sort(key=lambda old: old.name != new.name)
        if alike:
            left.remove(alike[0])
            kept.append(alike[0])
        else:
            added.append(new)
    return kept, added, left
