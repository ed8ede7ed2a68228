"""`OnnxRuntimeBackend`: one session per instance, run on the instance's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.backend import (
    Backend,
    InferenceRequest,
    InstanceContext,
    InstanceKind,
    ModelConfig,
    Outcome,
    Traits,
    WithApplication,
)
from penstock_backends.onnxruntime.autocomplete import completed, needs_completion
from penstock_backends.onnxruntime.check import check_declared, check_supported
from penstock_backends.onnxruntime.model_file import model_file
from penstock_backends.onnxruntime.openai_app import open_openai_app
from penstock_backends.onnxruntime.providers import Device
from penstock_backends.onnxruntime.session import open_graph, read_graph
from penstock_backends.onnxruntime.settings import SessionSettings
from penstock_backends.onnxruntime.tensor_model import TensorModel
from penstock_backends.onnxruntime.text_model import GPU_RUN_COST, RUN_COST, TextModel, check_text
from penstock_backends.onnxruntime.tokenizer import TOKENIZER, Tokenizer

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication

Answer = Callable[[Sequence[InferenceRequest]], list[Outcome]]


class OnnxRuntimeBackend(WithApplication, Backend):
    """Joins the requests of a batch, runs the graph once and returns each request its rows.

    All of it happens on the instance's thread, so large batches do not block the event loop.
    """

    traits = Traits(
        batch_tensors=True,
        hints=frozenset(
            ("optimization.graph", "optimization.execution_accelerators", "model_operations")
        ),
        eager=True,
        takes_device_tensors=True,
    )

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        if not needs_completion(config):
            return config
        graph = await asyncio.to_thread(read_graph, config, version_path, settings)
        return completed(config, graph, settings)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        check_supported(config)
        SessionSettings.from_config(config, {})
        if config.parameter(TOKENIZER) is not None:
            check_text(config)

    async def initialize(self, context: InstanceContext) -> None:
        self._run = context.run
        self._config = context.config
        self._answer: Answer | None = await context.run(_load, context, asyncio.get_running_loop())

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = await self._run(self._answer, requests)
        return outcomes

    async def openai_app(self) -> OpenAiApplication | None:
        # On its thread, since the packages that it imports take a second.
        app: OpenAiApplication | None = await self._run(open_openai_app, self._config, self._answer)
        return app

    async def finalize(self) -> None:
        await self._run(self._release)

    def _release(self) -> None:
        self._answer = None


def _load(context: InstanceContext, loop: asyncio.AbstractEventLoop) -> Answer:
    config = context.config
    device = Device(context.kind, context.device_id)
    path = model_file(config, context.version_path)
    settings = SessionSettings.from_config(config, context.settings, context.host_policy)
    graph = open_graph(path, config, settings, device)
    name = config.parameter(TOKENIZER)
    if name is None:
        check_declared(config, graph)
        return TensorModel(config, graph)
    tokenizer = Tokenizer.load(config, name, context.version_path)
    on_gpu = context.kind == InstanceKind.KIND_GPU
    return TextModel(config, graph, tokenizer, loop, GPU_RUN_COST if on_gpu else RUN_COST)
