"""`TensorModelBackend`: the backend of an engine that runs a graph from tensors to tensors."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.backend import (
    Backend,
    InferenceRequest,
    Inspectable,
    InstanceContext,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    Outcome,
    Traits,
    WithApplication,
    share_of_cores,
)
from penstock_backends.language_model import MediaLimits, media_limits
from penstock_backends.openai_kit.tensor_encoder import (
    TensorEncoder,
    TensorReranker,
    application_of_images,
    application_of_pairs,
    application_over,
    has_scores,
    has_vectors,
    open_application,
)
from penstock_backends.tensor_models.autocomplete import (
    all_rows_vary,
    completed,
    completed_form,
    default_rows,
    needs_completion,
)
from penstock_backends.tensor_models.check import check_declared, check_partly, check_supported
from penstock_backends.tensor_models.device_run import DeviceRun
from penstock_backends.tensor_models.file_inputs import (
    FileInputs,
    FileModel,
    check_files,
    made_of_files,
    takes_images_alone,
)
from penstock_backends.tensor_models.graph import Graph
from penstock_backends.tensor_models.pooling import check_pooling, pooled
from penstock_backends.tensor_models.tensor_model import Answer, TensorModel
from penstock_backends.tensor_models.text_model import (
    CPU,
    GPU,
    TextModel,
    check_text,
)
from penstock_backends.tensor_models.tokenizer import TOKENIZER, Tokenizer, find_tokenizer

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication


_TAKE_OTHERS = (TOKENIZER, "penstock.image", "penstock.audio")
"""Parameters with which the tensors of requests are not those of the graph."""


class TensorModelBackend(Inspectable, WithApplication, Backend):
    """Joins the requests of a batch, runs the graph once and returns each request its rows.

    An engine is a subclass that opens a `Graph`: completing and checking configurations, ragged
    and padded inputs, batch inputs, files as inputs, tokenizers and OpenAI's embeddings come from
    here. All work happens on the instance's thread, so large batches do not block the event loop.
    """

    traits = Traits(batch_tensors=True, eager=True)

    filename: ClassVar[str]
    """The model's file or folder in a version's folder, unless the configuration names another."""

    @classmethod
    @abstractmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> Graph:
        """The graph in `path`, for its tensors only, to complete a configuration.

        Blocks; raises `ModelLoadError`.
        """

    @classmethod
    @abstractmethod
    def open(cls, context: InstanceContext, path: Path) -> Graph:
        """The graph in `path`, ready to run, on the instance's thread; raises `ModelLoadError`."""

    @classmethod
    def can_batch(cls, config: ModelConfig, graph: Graph) -> bool:
        """Whether the model takes batches, to complete a configuration.

        Where the engine knows no better, the first dimension of all tensors must be variable.
        """
        return all_rows_vary(graph)

    @classmethod
    def most_rows(cls, config: ModelConfig, graph: Graph, settings: Mapping[str, str]) -> int:
        """The largest batch that the model takes, to complete a configuration; 0 for none.

        Where the engine knows no better, that is the server's default.
        """
        return default_rows(settings) if cls.can_batch(config, graph) else 0

    @classmethod
    def model_path(cls, config: ModelConfig, version_path: Path) -> Path:
        """The file or folder to load; raises `ModelLoadError` where there is none."""
        path = version_path / (config.default_model_filename or cls.filename)
        if not path.exists():
            raise ModelLoadError(f"model '{config.name}': file {path} does not exist")
        return path

    @classmethod
    def tensor_model(cls, config: ModelConfig, graph: Graph) -> Answer:
        """The model for requests whose tensors are the graph's own."""
        model, run = TensorModel(config, graph), DeviceRun.for_graph(config, graph)
        return model if run is None else run.before(model)

    @classmethod
    def needs_completion(cls, config: ModelConfig) -> bool:
        """Whether the graph is to be read for what the configuration does not say."""
        return needs_completion(config)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        if not cls.needs_completion(config):
            return config
        return await asyncio.to_thread(cls._completed, config, version_path, settings)

    @classmethod
    def _completed(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        graph = pooled(config, cls.read(config, cls.model_path(config, version_path), settings))
        files = FileInputs(config, graph)
        rows = cls.most_rows(config, graph, settings) if files.have_rows else 0
        return completed(config, files.declared(graph), rows)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        check_supported(config)
        check_pooling(config, config.parameter(TOKENIZER) is not None)
        if config.parameter(TOKENIZER) is not None:
            check_text(config)
        check_files(config)

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        cls.model_path(config, version_path)
        if (name := config.parameter(TOKENIZER)) is not None:
            find_tokenizer(name, version_path)

    @classmethod
    def check_graph(cls, config: ModelConfig, graph: Graph, settings: Mapping[str, str]) -> None:
        """Refuse declared tensors that are not the graph's, where those of requests are to be.

        For a `check_files` that knows them of the file; raises `ModelLoadError`.
        """
        if any(map(config.parameter, _TAKE_OTHERS)):
            return
        if cls.needs_completion(config) and settings.get("auto-complete-config") != "false":
            check_partly(config, graph)
        else:
            check_declared(config, graph)

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return not cls.needs_completion(config)

    @classmethod
    def completed_form(cls, config: ModelConfig) -> ModelConfig | None:
        return completed_form(config, made_of_files(config))

    async def initialize(self, context: InstanceContext) -> None:
        self._run = context.run
        self._config = context.config
        self._limits = media_limits(context.config, context.settings)
        loop = asyncio.get_running_loop()
        self._graph: Graph | None = None
        try:
            self._answer: Answer | None = await context.run(self._load, context, loop)
        except BaseException:
            await context.run(self._close_graph)
            raise

    def _load(self, context: InstanceContext, loop: asyncio.AbstractEventLoop) -> Answer:
        config = context.config
        graph = self._graph = self.open(context, self.model_path(config, context.version_path))
        name = config.parameter(TOKENIZER)
        if name is None:
            files = FileInputs(config, graph)
            check_declared(config, files.declared(graph))
            threads = share_of_cores(config, context.host_policy)
            return files.before(self.tensor_model(config, graph), threads)
        tokenizer = Tokenizer.load(config, name, context.version_path)
        on_gpu = context.kind == InstanceKind.KIND_GPU
        return TextModel(config, pooled(config, graph), tokenizer, loop, GPU if on_gpu else CPU)

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = await self._run(self._answer, requests)
        return outcomes

    async def openai_app(self) -> OpenAiApplication | None:
        # On the instance's thread, since the packages that it imports take a second.
        app: OpenAiApplication | None = await self._run(
            _open_app, self._config, self._answer, self._limits
        )
        return app

    async def finalize(self) -> None:
        await self._run(self._release)

    def _release(self) -> None:
        if isinstance(self._answer, FileModel):
            self._answer.close()
        self._answer = None
        self._close_graph()

    def _close_graph(self) -> None:
        if self._graph is not None:
            self._graph.close()
        self._graph = None


def _open_app(config: ModelConfig, model: object, limits: MediaLimits) -> OpenAiApplication | None:
    """OpenAI's API of an encoder whose first output is a vector for each text or image, or a
    number for each pair of texts. They come from the model, through its scheduler.
    """
    if isinstance(model, FileModel) and takes_images_alone(config):
        named = config.output[0].label_filename
        encodes = has_vectors(config) and not named  # what has labels are scores
        return application_of_images(TensorEncoder(config), limits) if encodes else None
    if config.parameter(TOKENIZER) is None or not isinstance(model, TextModel):
        return open_application(config, None)  # its graph may read texts itself
    if len(config.input) > 1:
        reranker = TensorReranker(config, model.count_tokens)
        return application_of_pairs(reranker) if has_scores(config) else None
    return (
        application_over(TensorEncoder(config, model.count_tokens)) if has_vectors(config) else None
    )
