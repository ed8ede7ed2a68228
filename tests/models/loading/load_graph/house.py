"""A lifecycle over a repository with ensembles, and the models that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes import FakeBuilder, make_request
from penstock.core.errors import InvalidRequestError
from penstock.core.request import ANY_VERSION, InferenceRequest, InferenceResponse
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository

_TENSORS = """max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


class House:
    """A lifecycle over a repository on disk, whose plain models answer with what they get."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.builder = FakeBuilder()
        self.lifecycle = ModelLifecycle(ModelRepository([path]), self.builder)

    def write(self, **models: str) -> None:
        """Models by name, and what they are made of one behind the other; nothing for plain ones.

        `name:3` names a version.
        """
        for name, parts in models.items():
            (self.path / name / "1").mkdir(parents=True, exist_ok=True)
            text = _ensemble(parts.split()) if parts else 'backend: "fake"'
            (self.path / name / "config.pbtxt").write_text(text)

    async def load(self, *names: str) -> None:
        for name in names:
            await self.lifecycle.load(name)

    async def failure(self, name: str) -> str:
        """Why a load fails, without what all texts have in common."""
        with pytest.raises(InvalidRequestError) as failed:
            await self.lifecycle.load(name)
        return failed.value.message.removeprefix(f"load failed for model '{name}': ").rstrip("\n")

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        await self.lifecycle.unload(name, unload_dependents=unload_dependents)
        await self.lifecycle.wait_unloaded()

    @property
    def states(self) -> Mapping[str, str]:
        """The states of version 1 of every model."""
        return {
            name: f"{status.state}: {status.reason}" if status.reason else status.state.value
            for name, _, status in self.lifecycle.catalog.statuses()
        }

    @property
    def serving(self) -> str:
        return " ".join(model.config.name for model in self.lifecycle.catalog.models())

    async def ask(self, name: str) -> InferenceResponse:
        stream = self.lifecycle.catalog.find(name, ANY_VERSION).infer(request())
        return await anext(stream)


def _ensemble(parts: list[str]) -> str:
    steps = []
    for at, part in enumerate(parts):
        model, _, version = part.partition(":")
        source = "IN" if at == 0 else f"M{at}"
        target = "OUT" if at == len(parts) - 1 else f"M{at + 1}"
        steps.append(
            f'step {{ model_name: "{model}" model_version: {version or -1}'
            f' input_map {{ key: "IN" value: "{source}" }}'
            f' output_map {{ key: "OUT" value: "{target}" }} }}'
        )
    return f'platform: "ensemble" {_TENSORS} ensemble_scheduling {{ {" ".join(steps)} }}'


def request() -> InferenceRequest:
    return make_request("a")
