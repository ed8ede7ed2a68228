"""`VersionCheck`: what a load of one version would refuse, as far as it can be known without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.backend import Backend, Inspectable, WithApplication
from penstock.core.config import DynamicBatching, ModelConfig
from penstock.core.errors import (
    BackendNotInstalledError,
    InferenceError,
    as_inference_error,
)
from penstock.models.loading.acceptance import accepted
from penstock.models.loading.backends import backend_of
from penstock.models.loading.build_version import named_tokenizer
from penstock.models.loading.instance_factory import BackendSettingsOf, engine_cores, hosting
from penstock.models.loading.warmup import read_samples
from penstock.models.repository.implicit_state_files import read_states
from penstock.models.repository.integrity import SignatureKey
from penstock.models.repository.load_log import unlogged
from penstock.models.repository.repository import ModelFiles, naming_misplaced_config
from penstock.models.repository.version_files import read_labels
from penstock.models.sizing.headers.header_file import LongHeaderError
from penstock.models.sizing.headers.openvino_ir import check_openvino_ir
from penstock.models.sizing.headers.safetensors import read_safetensors

logger = logging.getLogger(__name__)

_SOME_ROWS = 1 << 16
"""A batch size for what nobody knows yet."""


_READERS: Mapping[str, Callable[[Path], object]] = {
    ".safetensors": read_safetensors,
    ".xml": check_openvino_ir,
}
"""Readers of headers, which raise for damaged files, by the endings of these."""


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The settings of the server that would load the models, and its machine.

    `settings_of` returns those of a backend. `gpus` are the machine's. With `other_machine`, one
    with more of them may be meant, so that their lack is a warning. With a `signature_key`, models
    must be signed.
    """

    settings_of: BackendSettingsOf
    auto_complete: bool = True
    gpus: Sequence[int] = ()
    cpu_only: bool = False
    other_machine: bool = True
    cores: int = 1
    signature_key: SignatureKey | None = None


class VersionCheck:
    """What is known of one version: `errors` as a load raises them, and its configuration.

    `config` is completed where that needs neither the engine nor the model's code; else `complete`
    is false. `missing` says how to install the engine; `on_this_machine` are refusals for lack of
    GPUs here; `unread` are files that are needed and among those that were `left_out` of the copy.
    """

    def __init__(
        self,
        files: ModelFiles,
        version: int,
        settings: CheckSettings,
        left_out: Collection[Path] = (),
    ) -> None:
        self._files, self._settings, self._left_out = files, settings, left_out
        self._path = files.versions[version]
        self.config = files.config
        self.backend: type[Backend] | None = None
        self.complete = True
        self.errors: list[InferenceError] = []
        self.on_this_machine: list[InferenceError] = []
        self.missing = ""
        self.unread: list[Path] = []

    async def run(self) -> None:
        """Go through a load's steps, up to its start; one that is refused does not end it."""
        options = dict(self._settings.settings_of(self.config.backend))
        if not self._settings.auto_complete:
            options["auto-complete-config"] = "false"  # the name that Triton tells backends
        with self._noted():
            found = await asyncio.to_thread(backend_of, self.config, options)
            self.backend, self.config = found.backend, found.config
        if self.backend is not None:
            await self._check(self.backend, options)

    async def _check(self, backend: type[Backend], options: Mapping[str, str]) -> None:
        with self._noted():
            await self._complete(backend, options)
        before = len(self.errors)
        with self._noted():
            self._accept(backend)
        if len(self.errors) == before:
            self._check_parts(backend)
        await self._check_files(backend, options)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note what is raised, as a load tells it."""
        try:
            with naming_misplaced_config(self._files.path, self._files.has_config):
                yield
        except BackendNotInstalledError as error:
            self.missing, self.complete = error.message, False
        except Exception as error:  # of a backend, which may raise anything
            known = as_inference_error(error)
            if unread := [file for file in self._left_out if f"'{file}'" in known.message]:
                self.unread += unread
            elif known.message not in {other.message for other in self.errors}:
                self.errors.append(known)

    async def _complete(self, backend: type[Backend], options: Mapping[str, str]) -> None:
        """Complete the configuration, where that needs no more than a look at files."""
        if not self._settings.auto_complete or not _completes(backend):
            return
        self.complete = False
        if issubclass(backend, Inspectable) and backend.completes_by_reading(
            self.config, self._path
        ):
            self.config = await backend.complete_config(self.config, self._path, options)
            self.complete = True

    def _accept(self, backend: type[Backend]) -> None:
        """The rules of all models. What the model may still add to its configuration is no error:
        it is refused for what no addition would change, which may be another reason.
        """
        if self.complete:
            self.config = self._accepted(self.config, backend)
            return
        with unlogged():  # it may say what is not so once the model is loaded
            try:
                self.config = self._accepted(self.config, backend)
            except InferenceError as error:
                forms = _completed_forms(self.config, backend)
                others = [self._refusal(form, backend) for form in forms]
                refusals = [other for other in others if other is not None]
                if len(refusals) < len(others):
                    return
                if any(other.message == error.message for other in refusals):
                    raise
                raise refusals[-1] from error

    def _refusal(self, config: ModelConfig, backend: type[Backend]) -> InferenceError | None:
        try:
            self._accepted(config, backend)
        except InferenceError as error:
            return error
        return None

    def _accepted(self, config: ModelConfig, backend: type[Backend]) -> ModelConfig:
        gpus, cpu_only = self._settings.gpus, self._settings.cpu_only
        try:
            return accepted(config, backend, gpus, cpu_only=cpu_only)
        except InferenceError as error:
            if gpus or cpu_only or not self._settings.other_machine:
                raise
            try:
                with unlogged():
                    found = accepted(config, backend, wanted_gpus(config))
            except InferenceError as other:
                if other.message == error.message:
                    raise
                self.on_this_machine.append(error)
                raise other from error
            self.on_this_machine.append(error)
            return found

    def _check_parts(self, backend: type[Backend]) -> None:
        """What is made of an accepted configuration before its instances start."""
        config, path = self.config, self._files.path
        with self._noted():
            read_labels(config, path)
        with self._noted():
            hosting(backend, config)
            engine_cores(config)
        with self._noted():
            if config.sequence_batching is not None:
                read_states(config, path)
        with self._noted():
            if not (issubclass(backend, WithApplication) and backend.has_application(config)):
                named_tokenizer(config, self._path)
        with self._noted():
            if self.complete:
                read_samples(config, path)

    async def _check_files(self, backend: type[Backend], options: Mapping[str, str]) -> None:
        if not issubclass(backend, Inspectable):
            return
        with self._noted():
            await asyncio.to_thread(backend.check_files, self.config, self._path, options)
        weights: Sequence[Path] = ()
        with self._noted():
            weights = await asyncio.to_thread(
                backend.weight_files, self.config, self._path, options
            )
        for file in (each for each in weights if each.suffix in _READERS):
            with self._noted(), suppress(LongHeaderError):  # which the engine may read
                await asyncio.to_thread(_READERS[file.suffix], file)
        self.missing = self.missing or backend.engine_missing(options)


def _completes(backend: type[Backend]) -> bool:
    """Whether a backend completes configurations at all."""
    return any("complete_config" in vars(cls) for cls in backend.__mro__ if cls is not Backend)


def _completed_forms(
    config: ModelConfig, backend: type[Backend]
) -> tuple[ModelConfig, ModelConfig]:
    """The configuration as if its model had completed its tensors, and all that it may."""
    tensors = backend.completed_form(config) if issubclass(backend, Inspectable) else None
    if tensors is None:
        tensors = replace(config, input=(), output=())
    return tensors, replace(
        tensors,
        max_batch_size=config.max_batch_size or _SOME_ROWS,
        dynamic_batching=config.dynamic_batching
        or (None if config.sequence_batching else DynamicBatching()),
    )


def wanted_gpus(config: ModelConfig) -> Sequence[int]:
    """GPUs of a machine that has those which the configuration names, one at least."""
    named = (gpu for group in config.instance_group for gpu in group.gpus)
    return range(max(named, default=0) + 1)
