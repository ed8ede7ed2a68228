"""A version builder with a repository of one model, whose backend plays a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import FakeBackend, InstallBackend, Script, write_model
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.loaded_model import LoadedModel
from penstock.system.reaper import Reaper

TENSORS = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


class House:
    """A version builder, a repository, and `fake`, installed as another distribution's backend."""

    def __init__(self, path: Path, install: InstallBackend) -> None:
        self.path = path
        self.script = Script()
        self._install = install
        self._installed = False

    async def load(
        self,
        config: str = TENSORS,
        backend: type[FakeBackend] = FakeBackend,
        **options: Any,
    ) -> LoadedModel:
        """Version 1 of a model with this configuration, on this backend, playing the script."""
        self.install(backend)
        write_model(self.path, config=config)
        builder = VersionBuilder(options.pop("settings_of", lambda _: {}), Reaper(), **options)
        return await builder.build(ModelRepository([self.path]).read("m"), 1)

    def install(self, backend: type[FakeBackend] = FakeBackend) -> None:
        """Install the backend, if it is not yet."""
        if not self._installed:
            self._install("fake", type("Scripted", (backend,), {"script": self.script}))
            self._installed = True

    @property
    def names(self) -> list[str]:
        return sorted(context.name for context in self.script.contexts)
