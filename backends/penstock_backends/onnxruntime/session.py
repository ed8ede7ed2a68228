"""Opens ONNX Runtime sessions: options, execution providers and thread pools."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from penstock.backend import BackendNotInstalledError, ModelConfig, ModelLoadError
from penstock_backends.onnxruntime.graph import OnnxGraph, can_stay, reason
from penstock_backends.onnxruntime.kept_model import KeptModel, key_of
from penstock_backends.onnxruntime.providers import CPU, CUDA, Device, Provider, providers
from penstock_backends.onnxruntime.settings import SessionSettings

logger = logging.getLogger(__name__)

NOT_INSTALLED = (
    "the onnxruntime backend needs a package that is not installed; install it with: "
    "pip install 'penstock[onnx]'"
)

_ERRORS_ONLY = 3
_CUDA = 2
"""DLPack's number of GPUs of NVIDIA."""
_numbers = count()


def read_graph(config: ModelConfig, path: Path, settings: Mapping[str, str]) -> OnnxGraph:
    """Open the graph unoptimised, to read its tensors."""
    ort = _runtime()
    wanted = SessionSettings.from_config(config, settings)
    options = _session_options(ort, wanted)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _session(ort, path, config.name, options, [(CPU, {})])
    return OnnxGraph(session)


def open_graph(
    path: Path, config: ModelConfig, settings: SessionSettings, device: Device
) -> OnnxGraph:
    """Open the graph, optimised, on `device`. Raises `ModelLoadError`."""
    ort = _runtime()
    chosen = providers(config, device, ort.get_available_providers())
    session = _optimised(ort, path, config.name, settings, chosen)
    running = session.get_providers()
    for name, _ in chosen:
        if name not in running:
            raise ModelLoadError(
                f"model '{config.name}' asks for {name}, which did not start; running: "
                f"{', '.join(running)}"
            )
    memory = (_CUDA, device.id) if CUDA in running and can_stay() else None
    return OnnxGraph(session, _run_options(ort, settings), memory)


def _optimised(
    ort: Any, path: Path, model: str, settings: SessionSettings, chosen: list[Provider]
) -> Any:
    """A session of the model; its optimised form is kept, and used, where there is a folder."""

    def session(file: Path, **changes: Any) -> Any:
        options = _session_options(ort, settings)
        _profile(options, model, settings.profile)
        for name, value in changes.items():
            setattr(options, name, value)
        return _session(ort, file, model, options, chosen)

    if settings.cache is None:
        return session(path)
    how = (ort.__version__, settings.what_is_optimised, repr(chosen))
    try:
        kept = KeptModel(settings.cache, model, key_of(path, *how))
        if (found := kept.find()) is not None:
            try:
                none = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
                return session(found, graph_optimization_level=none)
            except ModelLoadError as error:
                logger.warning("model '%s': %s is made anew: %s", model, found, error)
        with kept.made() as file:
            return session(path, optimized_model_filepath=str(file))
    except (OSError, ModelLoadError) as error:
        made = session(path)  # which raises where the model itself is at fault
        logger.warning("model '%s': its optimised form is not kept: %s", model, error)
        return made


def _profile(options: Any, model: str, folder: Path | None) -> None:
    """Have the session write a profile when it ends. Raises `ModelLoadError`."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelLoadError(f"model '{model}': no profile can be written: {error}") from error
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / f"{model}-{os.getpid()}-{next(_numbers)}")


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendNotInstalledError(NOT_INSTALLED) from error
    return onnxruntime


def _session(ort: Any, path: Path, model: str, options: Any, chosen: list[Provider]) -> Any:
    try:
        return ort.InferenceSession(str(path), options, providers=chosen)
    except Exception as error:  # ONNX Runtime has no base class of errors
        raise ModelLoadError(f"failed to load model '{model}': {reason(error)}") from error


def _session_options(ort: Any, settings: SessionSettings) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.enable_cpu_mem_arena = settings.memory_arena
    options.enable_mem_pattern = settings.memory_pattern
    options.graph_optimization_level = _level(ort, settings.graph_level)
    if settings.parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    for name, value in settings.session_entries:
        options.add_session_config_entry(name, value)
    for library in settings.operator_libraries:
        _register(options, library)
    _set_threads(ort, options, settings)
    return options


def _register(options: Any, library: str) -> None:
    try:
        options.register_custom_ops_library(library)
    except Exception as error:  # ONNX Runtime has no base class of errors
        raise ModelLoadError(f"operator library {library}: {reason(error)}") from error


def _set_threads(ort: Any, options: Any, settings: SessionSettings) -> None:
    if settings.shared_threads:
        options.use_per_session_threads = False
        _share_threads(ort, settings.intra_op_threads, settings.inter_op_threads)
    else:
        options.intra_op_num_threads = settings.intra_op_threads
        options.inter_op_num_threads = settings.inter_op_threads


@cache
def _share_threads(ort: Any, intra_op: int, inter_op: int) -> None:
    """Create the process's global thread pool, which ONNX Runtime allows once."""
    ort.set_global_thread_pool_sizes(intra_op, inter_op)


def _level(ort: Any, level: int) -> Any:
    """The level of Triton's numbers; those that it does not know are all optimisations."""
    levels = ort.GraphOptimizationLevel
    known = {-1: levels.ORT_ENABLE_BASIC, 1: levels.ORT_ENABLE_EXTENDED, 2: levels.ORT_DISABLE_ALL}
    return known.get(level, levels.ORT_ENABLE_ALL)


def _run_options(ort: Any, settings: SessionSettings) -> Any:
    if not settings.run_entries:
        return None
    options = ort.RunOptions()
    for name, value in settings.run_entries:
        options.add_run_config_entry(name, value)
    return options
