"""Adapter of TensorRT-LLM's `LLM`, the only module that knows the package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from typing import Any, Final

from penstock.backend import (
    BackendNotInstalledError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
)
from penstock_backends.tensorrt_llm.request import Adapter
from penstock_backends.tensorrt_llm.settings import EngineSettings
from penstock_backends.tensorrt_llm.statistics import TensorRtLlmStatistics

logger = logging.getLogger(__name__)

NO_ENGINES = "this TensorRT-LLM no longer runs TensorRT engines; give 'model' in model.yaml"
UNHEALTHY = "Model is unavailable due to unhealthy TensorRT-LLM engine"
PREFIX = "Error generating request: "

_CLIENTS = ("RequestError", "ValueError", "TypeError")
_DEATH = "CppExecutorError"
_STATS = "enable_iter_perf_stats"
_WORDS = {"stop_words": "stop", "bad_words": "bad"}


class TensorRtLlmEngine:
    """One `LLM` and what it has reported; for one event loop, but for its start and end."""

    def __init__(self, settings: EngineSettings) -> None:
        """Start the engine, which takes seconds to minutes. Blocks; raises `ModelLoadError`."""
        self.statistics = TensorRtLlmStatistics()
        self._seconds = settings.stats_seconds
        self._died = False
        self._reader: asyncio.Task[None] | None = None
        settings.values.setdefault(_STATS, True)
        self._has_statistics = bool(settings.values[_STATS])
        self._llm: Any = _start(settings)

    @property
    def llm(self) -> Any:
        """TensorRT-LLM's own object."""
        return self._llm

    @property
    def failed(self) -> bool:
        """Whether the engine has died; it does not recover."""
        return self._died or self._llm is None or not _healthy(self._llm)

    def read_statistics(self) -> None:
        """Read the engine's reports from now on, on the running event loop."""
        if self._has_statistics:
            self._reader = asyncio.create_task(self._read())

    def submit(
        self,
        prompt: Any,
        sampling: Mapping[str, Any],
        adapter: Adapter | None = None,
        *,
        streaming: bool,
    ) -> Any:
        """Give the engine a request; its `RequestOutput` brings the answer and can be aborted.

        `prompt` is a text, a list of token ids, or a mapping with either and `multi_modal_data`.
        """
        if self.failed:
            raise UnavailableError(UNHEALTHY)
        try:
            return self._llm.generate_async(
                inputs=prompt,
                sampling_params=self._sampling(sampling),
                lora_request=None if adapter is None else _lora(adapter),
                streaming=streaming,
            )
        except Exception as error:  # the package's own, of any kind
            raise self.translated(error) from error

    def translated(self, error: Exception) -> InferenceError:
        """The package's error as an `InferenceError`; notes the engine's death."""
        if isinstance(error, InferenceError):
            return error
        names = [cls.__name__ for cls in type(error).__mro__]
        if _DEATH in names:
            self._died = True
        reason = str(error) or names[0]
        if self.failed:
            return UnavailableError(f"{UNHEALTHY}: {reason}")
        if any(name in names for name in _CLIENTS):
            return InvalidRequestError(PREFIX + reason)
        return InternalError(PREFIX + reason)

    async def stop(self) -> None:
        """Stop reading reports."""
        reader, self._reader = self._reader, None
        while reader is not None and not reader.done():
            reader.cancel()  # again, as waiting with a timeout may swallow it
            await asyncio.wait([reader], timeout=self._seconds)

    def shut_down(self) -> None:
        """Shut down the engine and its workers. Blocks."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        try:
            llm.shutdown()
        except Exception:  # it may be half dead
            logger.exception("TensorRT-LLM did not shut down cleanly")

    def _sampling(self, values: Mapping[str, Any]) -> Any:
        """`SamplingParams`; words of several tokens go in as text, of which it makes tokens."""
        given = dict(values)
        for name, field in _WORDS.items():
            if words := given.pop(name, None):
                given[field] = [self._llm.tokenizer.decode(word) for word in words]
        if (bias := given.pop("embedding_bias", None)) is not None:
            given["embedding_bias"] = import_module("torch").from_numpy(bias.copy())
        if (guide := given.pop("guided_decoding", None)) is not None:
            guides = import_module("tensorrt_llm.llmapi").GuidedDecodingParams
            given["guided_decoding"] = guides(**guide)
        return import_module("tensorrt_llm").SamplingParams(**given)

    async def _read(self) -> None:
        """Record each report; between them the engine is asked again, never in a busy loop."""
        while self._llm is not None:
            try:
                reports: AsyncIterator[Any] = self._llm.get_stats_async(timeout=self._seconds)
                async for report in reports:
                    self.statistics.record(report)
            except Exception as error:  # versions differ in what an empty queue raises
                logger.debug("TensorRT-LLM gave no statistics: %s", error)
            await asyncio.sleep(self._seconds)


def _start(settings: EngineSettings) -> Any:
    llm = _llm_class(settings)
    try:
        return llm(**_arguments(settings))
    except Exception as error:  # unknown arguments, missing files, too little memory ...
        raise ModelLoadError(
            f"TensorRT-LLM cannot start with '{settings.path}': {error}"
        ) from error


NOT_INSTALLED: Final = "backend 'tensorrt_llm' needs TensorRT-LLM: pip install 'penstock[trtllm]'"


def _llm_class(settings: EngineSettings) -> Any:
    """The class that runs the model: checkpoints, or engines where the version still does."""
    try:
        package = import_module("tensorrt_llm")
    except ImportError as error:
        raise BackendNotInstalledError(f"{NOT_INSTALLED} ({error})") from error
    if not settings.is_engine:
        return package.LLM
    try:
        return import_module("tensorrt_llm._tensorrt_engine").LLM
    except ImportError as error:
        raise ModelLoadError(NO_ENGINES) from error


def _arguments(settings: EngineSettings) -> dict[str, Any]:
    """The keyword arguments, with mappings made into the package's own classes, if it has a way.

    Engines were built with most of it; the class that runs them does not know the rest.
    """
    values = dict(settings.values)
    if settings.is_engine:
        values.pop("backend", None)
        values.pop(_STATS, None)
        return values
    try:
        convert = import_module("tensorrt_llm.llmapi.llm_utils").update_llm_args_with_extra_dict
    except (ImportError, AttributeError):
        return values
    converted: dict[str, Any] = convert({}, values)
    return converted


def _lora(adapter: Adapter) -> Any:
    """The adapter; its source is given only where it is not the default, for older versions."""
    source = {} if adapter.source == "hf" else {"lora_ckpt_source": adapter.source}
    return import_module("tensorrt_llm.executor.request").LoRARequest(
        lora_name=adapter.name,
        lora_int_id=adapter.number,
        lora_path=adapter.path,
        **source,
    )


def _healthy(llm: Any) -> bool:
    """The engine's own report, where there is one: a name that it does not promise."""
    check = getattr(llm, "_check_health", None)
    return check is None or bool(check())
