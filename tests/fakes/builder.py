"""A version builder of models on fake instances, and the folders that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes.instances import FakeInstance
from fakes.values import model_config
from penstock.core.errors import InferenceError
from penstock.inflight.statistics import Statistics
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelFiles
from penstock.models.repository.version_files import origin_of
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling.direct import DirectScheduler
from penstock.system.reaper import Reaper


class FakeBuilder(VersionBuilder):
    """Makes models of one `FakeInstance` each, when `gate` is open, and that of the version.

    `failures` are raised for versions, `broken` for models; `before` is run for a model first.
    A model has an origin if the builder `remembers`; otherwise its files may have changed.
    """

    def __init__(self) -> None:
        super().__init__(lambda _: {}, Reaper())
        self.gate = asyncio.Event()
        self.gate.set()
        self.gates: dict[int, asyncio.Event] = {}
        self.failures: dict[int, BaseException] = {}
        self.broken: dict[str, BaseException] = {}
        self.before: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.held = False
        self.remembers = False
        self.instances: list[FakeInstance] = []
        self.given_up = 0
        self.loading = 0
        self.most_loading = 0

    async def refusal(self, files: ModelFiles) -> InferenceError | None:
        """Its models have no backend that could refuse them."""
        return None

    async def build(self, files: ModelFiles, version: int) -> LoadedModel:
        self.loading += 1
        self.most_loading = max(self.loading, self.most_loading)
        try:
            await self.gates.get(version, self.gate).wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.loading -= 1
        if files.name in self.before:
            await self.before[files.name]()
        for failure in (self.failures.get(version), self.broken.get(files.name)):
            if failure is not None:
                raise failure
        instance = FakeInstance(f"{files.name}_{version}", held=self.held)
        self.instances.append(instance)
        config = replace(model_config(), name=files.name)
        instances = (instance,)
        scheduler = DirectScheduler(instances)
        origin = origin_of(files, version) if self.remembers else None
        statistics = Statistics()
        parts = ModelParts(
            config, version, scheduler, statistics, folder=files.folder, origin=origin
        )
        return LoadedModel(parts, instances)


def write_model(
    root: Path, name: str = "m", versions: Iterable[int] = (1,), config: str = ""
) -> None:
    """A model's folder with these versions; `config` is added to its `config.pbtxt`."""
    (root / name).mkdir(exist_ok=True)
    (root / name / "config.pbtxt").write_text(f'backend: "fake" {config}')
    for version in versions:
        (root / name / str(version)).mkdir(exist_ok=True)
