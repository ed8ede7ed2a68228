"""`RepositoryCheck`: what a load of a repository's models would refuse, without loading them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError, ModelLoadError
from penstock.models.checking import cautions
from penstock.models.checking.findings import ModelReport, Report
from penstock.models.checking.model_findings import ModelFindings
from penstock.models.checking.version_check import CheckSettings, VersionCheck, wanted_gpus
from penstock.models.config.defaults import normalized
from penstock.models.config.pins import pins_of
from penstock.models.config.unsupported import refuse_unsupported
from penstock.models.config.validation import validate
from penstock.models.config.validation.composition import composed
from penstock.models.loading.acceptance import refuse_whatever_versions
from penstock.models.loading.backends import backend_of
from penstock.models.loading.build_version import named_tokenizer
from penstock.models.loading.dependencies import DependencyGraph, Failure, needs_of
from penstock.models.loading.load_graph import unavailable
from penstock.models.repository.integrity import check_files
from penstock.models.repository.load_log import kept_warnings, logged_reason
from penstock.models.repository.repository import (
    ModelFiles,
    ModelRepository,
    naming_misplaced_config,
    versions_to_load,
)
from penstock.models.repository.version_files import read_labels


@dataclass(slots=True)
class _Checked:
    """What the check of a model found, for the ensembles that need it."""

    config: ModelConfig
    versions: set[int]
    complete: bool = True


class RepositoryCheck:
    """Checks the models of repositories; `roots` are their folders, and what to call each.

    `unfetched` are models of other places that could not be brought here, and `left_out` files of
    theirs in whose place are zeros.
    """

    def __init__(
        self,
        repository: ModelRepository,
        roots: Mapping[Path, str],
        settings: CheckSettings,
        unfetched: Mapping[str, InferenceError] = MappingProxyType({}),
        left_out: Collection[Path] = (),
    ) -> None:
        self._repository, self._roots, self._settings = repository, roots, settings
        self._unfetched, self._left_out = unfetched, left_out
        self._graph = DependencyGraph()
        self._found: dict[str, ModelFindings] = {}
        self._checked: dict[str, _Checked] = {}
        self._failures: dict[str, Failure] = {}

    async def run(self, names: Collection[str] = ()) -> Report:
        """Check the models of these names and those that they need; by default all."""
        todo = set(names) or {*self._repository.names(), *self._unfetched}
        files: dict[str, ModelFiles] = {}
        while todo:
            read = {name: self._read(name) for name in sorted(todo) if name not in self._found}
            files |= {name: found for name, found in read.items() if found is not None}
            todo = {need for found in read.values() if found for need in needs_of(found.config)}
            todo = (todo & set(self._repository.names())) - self._found.keys()
        for found in files.values():
            self._graph.add(found, explicit=True)
        for name in self._graph.load_order(files.keys()):
            with kept_warnings() as logged:
                if files[name].config.is_ensemble:
                    await self._check_ensemble(files[name])
                else:
                    await self._check_model(files[name])
                for caution in cautions.of_files(files[name]):
                    self._found[name].warn(caution)
            self._found[name].keep_log(logged)
        return Report(tuple(self._report(name) for name in sorted(self._found)))

    def _report(self, name: str) -> ModelReport:
        checked = self._checked.get(name)
        versions = () if checked is None else tuple(sorted(checked.versions))
        return self._found[name].report(versions)

    # -- one model ----------------------------------------------------------------------------

    def _read(self, name: str) -> ModelFiles | None:
        root = next((root for root in self._roots if (root / name).is_dir()), None)
        shown = "" if root is None else self._roots[root]
        path = None if root is None else root / name
        config = None if path is None else self._repository.config_file(path)
        found = self._found[name] = ModelFindings(name, path, config, shown)
        if name in self._unfetched:
            found.refuse(self._unfetched[name])
            return None
        with kept_warnings() as logged:
            try:
                files = self._repository.read(name)
            except InferenceError as error:
                known = error.__cause__ or error
                found.refuse(known if known is not error else logged_reason(error, name, logged))
                return None
        found.keep_log(logged)
        return files

    async def _check_model(self, files: ModelFiles) -> None:
        found = self._found[files.name]
        try:
            wanted = versions_to_load(files, files.config.version_policy)
        except ModelLoadError as error:
            known = self._refusal(files) or error
            found.refuse(known)
            self._failures[files.name] = Failure(known.message)
            return
        errors: dict[int, InferenceError] = {}
        left_out = self._left_out_of(files)
        checks = {
            version: VersionCheck(files, version, self._settings, left_out) for version in wanted
        }
        for version, check in checks.items():
            await check.run()
            self._tell(found, files, check)
            if check.errors:
                errors[version] = check.errors[0]
        try:
            await self._check_integrity(files)
        except InferenceError as error:
            found.refuse(error)
            errors = dict.fromkeys(wanted, error)
        if errors:
            self._failures[files.name] = Failure(unavailable(errors))
            return
        latest = checks[max(checks)]
        self._checked[files.name] = _Checked(latest.config, set(wanted), latest.complete)

    def _tell(self, found: ModelFindings, files: ModelFiles, check: VersionCheck) -> None:
        for error in check.errors:
            found.refuse(error)
        for error in check.on_this_machine:
            found.refuse(error, rule="gpu-not-here")
        for file in check.unread:
            found.leave_open(f"what is in '{file}', which is too large to be fetched for a check")
        if check.missing:
            found.warn(cautions.not_installed(check.missing))
        if check.backend is None or check.errors:
            return
        if not check.complete:
            found.leave_open(
                f"backend '{check.config.backend}' completes the configuration from the model, when"
                " it is loaded"
            )
            return
        cores = self._settings.cores
        for caution in cautions.of_config(check.config, files.config, check.backend, cores):
            found.warn(caution)

    async def _check_integrity(self, files: ModelFiles) -> None:
        """Raise for files that are not the pinned or signed ones, where all of these are here."""
        key = self._settings.signature_key
        pinned = {files.path / pin.file for pin in pins_of(files.config)}
        left_out = self._left_out_of(files)
        if left_out and (key is not None or not pinned.isdisjoint(left_out)):
            self._found[files.name].leave_open(
                "whether the files are those that are pinned or signed, as not all were fetched"
            )
        else:
            await asyncio.to_thread(check_files, files.config, files.path, key)

    def _left_out_of(self, files: ModelFiles) -> list[Path]:
        return [file for file in self._left_out if file.is_relative_to(files.path)]

    def _refusal(self, files: ModelFiles) -> InferenceError | None:
        """Why a model without a version could not be built with one either, on any machine that
        may be meant.
        """
        settings = self._settings
        try:
            found = backend_of(files.config, settings.settings_of(files.config.backend))
            gpus = settings.gpus
            if not gpus and not settings.cpu_only and settings.other_machine:
                gpus = wanted_gpus(found.config)
            refuse_whatever_versions(found.config, found.backend, gpus, cpu_only=settings.cpu_only)
        except InferenceError as error:
            return error
        return None

    # -- ensembles ----------------------------------------------------------------------------

    async def _check_ensemble(self, files: ModelFiles) -> None:
        name, found = files.name, self._found[files.name]
        needs = needs_of(files.config)
        ready = {need: self._versions(need) for need in needs}
        problem = self._graph.defect(name) or self._graph.unmet(name, ready, self._failures)
        if problem:
            found.refuse(ModelLoadError(problem))
            self._failures[name] = Failure(problem, invalid=True)
            return
        known = {need: self._checked[need] for need in needs}
        if loose := [need for need, checked in known.items() if not checked.complete]:
            found.leave_open(
                f"what the steps of {', '.join(sorted(loose))} take and give is known once these"
                " are loaded"
            )
        try:
            config = self._composed(files, known, partial=bool(loose))
            wanted = versions_to_load(files, config.version_policy)
            for path in wanted.values():
                self._accept_ensemble(config, files, path)
            await self._check_integrity(files)
        except InferenceError as error:
            found.refuse(error)
            self._failures[name] = Failure(error.message, invalid=True)
            return
        self._checked[name] = _Checked(config, set(wanted), not loose)

    def _versions(self, name: str) -> set[int]:
        return self._checked[name].versions if name in self._checked else set()

    def _composed(
        self, files: ModelFiles, parts: Mapping[str, _Checked], *, partial: bool
    ) -> ModelConfig:
        """The ensemble over its models; with `partial`, of some of which not all is known."""
        config = normalized(files.config)
        configs = {need: part.config for need, part in parts.items()}
        if partial:
            try:
                return composed(config, configs)
            except ModelLoadError:
                return config
        named = {need for need in parts if not self._graph[need].files.config.max_batch_size}
        completed = {need for need in named if parts[need].config.max_batch_size}
        return composed(config, configs, completed)

    def _accept_ensemble(self, config: ModelConfig, files: ModelFiles, path: Path) -> None:
        with naming_misplaced_config(files.path, files.has_config):
            validate(config)
            refuse_unsupported(config)
            read_labels(config, files.path)
            named_tokenizer(config, path)
