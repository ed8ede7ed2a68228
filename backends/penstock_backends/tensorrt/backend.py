"""`TensorRtBackend`: plans of TensorRT, each instance with a context for each of its profiles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

from penstock.backend import (
    ConfigError,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    Input,
    InstanceContext,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    Outcome,
    Output,
    WithReadiness,
    package_missing,
)
from penstock_backends.tensor_models import Graph, TensorModelBackend
from penstock_backends.tensor_models.autocomplete import needs_completion
from penstock_backends.tensor_models.shared_model import SharedModel
from penstock_backends.tensor_models.tensor_model import TensorModel
from penstock_backends.tensorrt.cuda import NOT_INSTALLED, WITHOUT_GPU, CudaError
from penstock_backends.tensorrt.execution import Execution
from penstock_backends.tensorrt.graph import TensorRtGraph
from penstock_backends.tensorrt.plan import Plan, use_gpu
from penstock_backends.tensorrt.settings import TensorRtSettings

_DLA = "KIND_NVDLA"


class TensorRtBackend(WithReadiness, TensorModelBackend):
    """Runs plans on GPUs; the instances of a model on a GPU share its weights."""

    traits = replace(
        TensorModelBackend.traits,
        hints=frozenset(
            (
                "cc_model_filenames",
                "instance_group.secondary_devices",
                "optimization.cuda",
                "optimization.eager_batching",
                "optimization.input_pinned_memory",
                "optimization.output_pinned_memory",
                "optimization.priority",
            )
        ),
    )
    filename = "model.plan"

    @classmethod
    def needs_completion(cls, config: ModelConfig) -> bool:
        _check_kinds(config)
        return needs_completion(config) or not config.max_batch_size

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> TensorRtGraph:
        number = next((gpu for group in config.instance_group for gpu in group.gpus), 0)
        given = TensorRtSettings.from_config(config, settings)
        plan = Plan.read(config, _file(config, path, number), number, -1, given)
        return TensorRtGraph(plan, _rows(config, plan))

    @classmethod
    def most_rows(cls, config: ModelConfig, graph: Graph, settings: Mapping[str, str]) -> int:
        assert isinstance(graph, TensorRtGraph)
        return graph.rows

    @classmethod
    def model_path(cls, config: ModelConfig, version_path: Path) -> Path:
        """The file, or the folder where GPUs may have files of their own (contract R-27)."""
        if config.cc_model_filenames:
            return version_path
        return super().model_path(config, version_path)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        _check_kinds(config)
        TensorRtSettings.from_config(config, {})

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        super().check_files(config, version_path, settings)
        TensorRtSettings.from_config(config, settings)

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        missing = any(package_missing(one, {}) for one in ("tensorrt", "cuda"))
        return NOT_INSTALLED if missing else ""

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> TensorRtGraph:
        config, number = context.config, context.device_id
        settings = TensorRtSettings.from_config(config, context.settings)
        core = next((id for kind, id in context.secondary_devices if kind == _DLA), -1)
        file = _file(config, path, number)
        shared = SharedModel.of(config, file, (number, core))
        plan: Plan = shared.get(lambda: Plan.read(config, file, number, core, settings))
        if config.max_batch_size > (most := max(plan.rows(config.instance_group).stop - 1, 0)):
            raise ModelLoadError(
                f"unexpected configuration maximum batch size {config.max_batch_size} for"
                f" '{context.name}', model maximum is {most}"
            )
        profiles = plan.profiles(context.profiles)
        device = use_gpu(config.name, number)
        try:
            execution = Execution(context.name, config, device, plan, profiles, settings)
        except BaseException as error:
            device.close()
            if isinstance(error, CudaError):
                raise ModelLoadError(
                    f"unable to open '{context.name}' on GPU {number}: {error}"
                ) from error
            raise
        rows = config.max_batch_size
        return TensorRtGraph(plan, rows, execution, settings.coalesces, shared)

    async def initialize(self, context: InstanceContext) -> None:
        await super().initialize(context)
        settings = TensorRtSettings.from_config(context.config, context.settings)
        # Behind a tokenizer, or readers of files, batches are not prepared side by side.
        several = settings.slots > 1 and isinstance(self._answer, TensorModel)
        self._ahead = _Ahead(context) if several else None
        if self._ahead is not None:
            await context.run(self._ahead.begin)

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        if self._ahead is None:
            return await super().execute(requests)
        return await self._ahead.execute(self._answer, requests)

    async def healthy(self) -> bool:
        return not (isinstance(self._graph, TensorRtGraph) and self._graph.failed)

    async def finalize(self) -> None:
        if self._ahead is not None:
            await self._run(self._ahead.close)
        await super().finalize()


class _Ahead:
    """Two threads for the batches of an instance: one is prepared while the other computes.

    `execute` returns while its batch computes, so that the scheduler forms the next; it waits while
    both threads have one.
    """

    def __init__(self, context: InstanceContext) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"{context.name}_ahead")
        self._free = asyncio.Semaphore(2)

    def begin(self) -> None:
        """Start both; called on the instance's thread, whose cores they get."""
        both = Barrier(2)
        list(self._threads.map(lambda _: both.wait(), range(2)))

    async def execute(self, answer: Any, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        await self._free.acquire()
        batch = asyncio.get_running_loop().run_in_executor(self._threads, answer, requests)
        batch.add_done_callback(self._done)
        return [_outcome(batch, at) for at in range(len(requests))]

    def _done(self, batch: asyncio.Future[list[Outcome]]) -> None:
        self._free.release()
        if not batch.cancelled():
            batch.exception()  # of which nobody may want to know any more

    def close(self) -> None:
        """End both threads, once all batches are done; blocks."""
        self._threads.shutdown()


async def _outcome(
    batch: asyncio.Future[list[Outcome]], at: int
) -> AsyncIterator[InferenceResponse]:
    """The answer to one request of a batch; who no longer wants it does not end the batch."""
    outcome = (await asyncio.shield(batch))[at]
    if isinstance(outcome, InferenceError):
        raise outcome
    assert isinstance(outcome, InferenceResponse)
    yield outcome


def _check_kinds(config: ModelConfig) -> None:
    """Refuse instances that are not on a GPU; raises `ConfigError`."""
    allowed = (InstanceKind.KIND_GPU, InstanceKind.KIND_AUTO)
    if any(group.kind not in allowed for group in config.instance_group):
        raise ConfigError(
            f"unable to load model '{config.name}', TensorRT backend supports only GPU device;"
            f" {WITHOUT_GPU}"
        )


def _rows(config: ModelConfig, plan: Plan) -> int:
    """The largest batch, to complete a configuration, or 0; raises `ModelLoadError`."""
    rows = plan.rows(config.instance_group)
    most = max(rows.stop - 1, 0)
    declared: list[Input | Output] = [*config.input, *config.output]
    ranks = {name: len(tensor.dims) for name, tensor in plan.tensors.items()}
    hinted = any(len(one.backend_dims) + 1 == ranks.get(one.name) for one in declared)
    why = ""
    if config.max_batch_size > most:
        why = (
            f"configuration specified max-batch {config.max_batch_size} but TensorRT engine only"
            f" supports max-batch {most}"
        )
    elif hinted and not most:
        why = (
            "model tensor shape configuration hints for dynamic batching but the underlying engine"
            " doesn't support batching."
        )
    if why:
        raise ModelLoadError(f"autofill failed for model '{config.name}': {why}")
    # Rows of one number only are no batch, unless the configuration takes them for one.
    return most if rows.start <= 1 or hinted or config.max_batch_size else 0


def _file(config: ModelConfig, path: Path, number: int) -> Path:
    """The plan for a GPU, by its compute capability where the model has several."""
    if not path.is_dir():
        return path
    capability = use_gpu(config.name, number).capability
    default = config.default_model_filename or TensorRtBackend.filename
    path = path / config.cc_model_filenames.get(capability, default)
    if not path.is_file():
        raise ModelLoadError(
            f"unable to find '{path}' for model '{config.name}' on a GPU of compute capability"
            f" {capability}"
        )
    return path
