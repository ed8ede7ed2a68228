"""Resizing: adding and removing instances of a model while it serves (M-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.repository.version_files import Origin
from penstock.models.serving.instance import ModelInstance
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.models.sizing.budget import Claim, Sizes
from penstock.scheduling import SequenceScheduler


@dataclass(frozen=True, slots=True)
class Resizing:
    """A prepared change of a model's instances: those kept, those added and started, those removed.

    Ends with either `commit` or `discard`. `claim` is the memory that those added take more,
    `surplus` are the bytes that the model takes less without those removed.
    """

    model: LoadedModel
    config: ModelConfig
    origin: Origin
    kept: Sequence[ModelInstance]
    added: Sequence[ModelInstance]
    removed: Sequence[ModelInstance]
    claim: Claim | None = None
    surplus: Sizes = field(default_factory=Sizes)

    def commit(self) -> LoadedModel | None:
        """Switch the model to its new instances; returns the removed ones as a model to stop."""
        self.model.resize(self.config, self.origin, (*self.kept, *self.added))
        freed = None
        if self.model.claim is not None:
            if self.claim is not None:
                self.model.claim.absorb(self.claim)
            freed = self.model.claim.split(self.surplus)
        return self._removed_model(self.removed, freed, self.model.sequences)

    def discard(self) -> LoadedModel | None:
        """Leave the model as it is; returns the added instances as a model to stop."""
        return self._removed_model(self.added, self.claim)

    def _removed_model(
        self,
        instances: Sequence[ModelInstance],
        claim: Claim | None,
        sequences: SequenceScheduler | None = None,
    ) -> LoadedModel | None:
        """The instances as a model, which gives their memory back once they are stopped."""
        if not instances:
            if claim is not None:
                claim.release()
            return None
        model = self.model
        scheduler = _RemovedInstances(instances, sequences)
        return LoadedModel(
            ModelParts(model.config, model.version, scheduler, Statistics(), claim=claim),
            instances,
        )


class _RemovedInstances:
    """The scheduler of removed instances: it takes no requests and drains those in flight."""

    def __init__(
        self, instances: Sequence[ModelInstance], sequences: SequenceScheduler | None
    ) -> None:
        self._instances = instances
        self._sequences = sequences

    def schedule(self, inference: Inference) -> None:
        raise AssertionError("removed instances get no requests")

    def abandon(self, error: InferenceError) -> None:
        """No request is queued for them."""

    async def drain(self) -> None:
        """Wait until their sequences have ended and their requests are answered (S-23)."""
        await asyncio.gather(*map(self._drain_instance, self._instances))

    async def _drain_instance(self, instance: ModelInstance) -> None:
        if self._sequences is not None:
            await self._sequences.vacated(instance)
        await instance.answered()


def matched(
    wanted: Sequence[ModelInstance], present: Sequence[ModelInstance]
) -> tuple[list[ModelInstance], list[ModelInstance], list[ModelInstance]]:
    """The present instances to keep, the wanted ones to add, and the present ones to remove.

    An instance is kept where one of equal signature is wanted, preferably of the same name.
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
