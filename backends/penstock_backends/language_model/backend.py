"""`LanguageModelBackend`: base class of backends whose engines batch in flight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from penstock.backend import (
    Backend,
    InferenceError,
    InferenceRequest,
    Inspectable,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Outcome,
    Traits,
)
from penstock_backends.language_model.declared_tensors import (
    NO_MORE,
    Tensors,
    check_decoupled,
    complete_tensors,
)
from penstock_backends.language_model.delivery import WINDOW
from penstock_backends.language_model.stream_interval import stream_interval


class LanguageModelBackend(Inspectable, Backend):
    """Passes every request to the engine at once; the engine runs in a process of its own.

    `title` is the backend's name in the texts of errors; `tensors` are those that its models have
    besides those of every language model. Where an engine is `on_cpu`, so is an instance of which
    the configuration says nothing.
    """

    traits = Traits(host="process", serial=False, window=WINDOW, reports_usage=True)
    title: ClassVar[str] = "language model"
    tensors: ClassVar[Tensors] = NO_MORE
    on_cpu: ClassVar[bool] = False

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        completed = complete_tensors(config, cls.tensors)
        if completed.instance_group or not cls.on_cpu:
            return completed
        on_cpu = InstanceGroup(kind=InstanceKind.KIND_CPU, count=1)
        return replace(completed, instance_group=(on_cpu,))

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return True

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        check_decoupled(config, cls.title)
        stream_interval(config)

    @abstractmethod
    def generate(self, request: InferenceRequest) -> Outcome:
        """Start one request; raises `InferenceError` to reject it."""

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        try:
            return self.generate(request)
        except InferenceError as error:
            return error
