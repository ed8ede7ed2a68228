"""Repositories of tests: checked, and loaded for real by a lifecycle in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.errors import InferenceError
from penstock.models.checking.findings import Finding, Level, Report
from penstock.models.checking.repository_check import RepositoryCheck
from penstock.models.checking.version_check import CheckSettings
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper

NOTHING: Mapping[str, str] = {}


def write_model(
    root: Path,
    name: str,
    config: str,
    files: Mapping[str, str | bytes] = NOTHING,
    version: str = "1",
) -> None:
    """A model's folder; `files` are by their paths in it."""
    (root / name / version).mkdir(parents=True, exist_ok=True)
    if config:
        (root / name / "config.pbtxt").write_text(config)
    for path, content in files.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        written = content if isinstance(content, bytes) else content.encode()
        (root / name / path).write_bytes(written)


async def check(
    roots: Path | Sequence[Path],
    *names: str,
    settings: Mapping[str, str] = NOTHING,
    gpus: Sequence[int] = (),
    cores: int = 64,
    other_machine: bool = True,
) -> Report:
    """The report about repositories."""
    folders = [roots] if isinstance(roots, Path) else roots
    how = CheckSettings(
        lambda _: dict(settings), gpus=gpus, cores=cores, other_machine=other_machine
    )
    repository = ModelRepository(folders)
    return await RepositoryCheck(repository, {root: str(root) for root in folders}, how).run(names)


async def errors(
    root: Path, *names: str, settings: Mapping[str, str] = NOTHING, gpus: Sequence[int] = ()
) -> list[Finding]:
    """What keeps models from loading on this machine, or one with these GPUs."""
    report = await check(root, *names, settings=settings, gpus=gpus, other_machine=False)
    return [found for found in report.findings if found.level is Level.ERROR]


async def warnings(root: Path, *names: str, cores: int = 64) -> dict[str, Finding]:
    """What loads with a warning, by rule."""
    report = await check(root, *names, cores=cores)
    return {found.rule: found for found in report.findings if found.level is Level.WARNING}


async def told_by_load(
    root: Path, name: str, settings: Mapping[str, str] = NOTHING, gpus: Sequence[int] = ()
) -> str:
    """What a client is told that loads the model; empty where it serves."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    reaper = Reaper()
    builder = VersionBuilder(lambda _: dict(settings), reaper, gpus=gpus)
    lifecycle = ModelLifecycle(ModelRepository([root]), builder)
    try:
        await lifecycle.load(name)
    except InferenceError as error:
        return error.message
    finally:
        await lifecycle.close()
        reaper.close()
    return ""
