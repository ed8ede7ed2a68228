"""Cautions: what loads, and is not what its operator wants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.models.config.pins import SHA256, pins_of
from penstock.models.repository.repository import ModelFiles, select_versions
from penstock.models.sizing.headers.onnx import external_files
from penstock.system.cpu_share import sharers

_POINTER = b"version https://git-lfs.github.com/"
_POINTER_SIZE = 1 << 10
"""Bytes of a pointer of Git LFS, at most."""

_LEVELS = 1 << 10
"""Levels of priority whose queues are looked at."""


class Caution(NamedTuple):
    """A warning of a rule: the reason, which names the field, and what to write."""

    rule: str
    reason: str
    fix: str


def of_config(
    config: ModelConfig, given: ModelConfig, backend: type[Backend], cores: int
) -> Iterator[Caution]:
    """Cautions about a complete configuration, of which `given` is what the file says."""
    rules: tuple[Callable[[ModelConfig], Iterator[Caution]], ...] = (
        _repeated_tensors,
        _preferred_sizes,
        _candidates,
    )
    for rule in rules:
        yield from rule(config)
    if backend.traits.serial:
        yield from _unbatched(config)
    if given.instance_group:
        yield from _crowded(config, cores)


def of_files(files: ModelFiles) -> Iterator[Caution]:
    """Cautions about the folder of a model."""
    yield from _unreachable(files)
    yield from _unpinned(files)
    for folder in files.versions.values():
        for path in sorted(folder.rglob("*")):
            if _is_pointer(path):
                yield Caution(
                    "git-lfs-pointer",
                    f"'{path}' is a pointer of Git LFS, not the file that it stands for",
                    "fetch the file: git lfs pull",
                )


def not_installed(text: str) -> Caution:
    """The caution about an engine that is not here, by the text that the load has for it."""
    command = text[text.index("pip install") :] if "pip install" in text else text
    return Caution("engine-not-installed", text, command)


def _unbatched(config: ModelConfig) -> Iterator[Caution]:
    scheduled = config.dynamic_batching or config.sequence_batching or config.ensemble_scheduling
    if config.max_batch_size > 1 and not scheduled:
        yield Caution(
            "no-dynamic-batching",
            f"max_batch_size is {config.max_batch_size}, but without dynamic_batching requests of"
            " different clients are not joined: each is executed alone",
            "dynamic_batching { }",
        )


def _preferred_sizes(config: ModelConfig) -> Iterator[Caution]:
    """Preferred sizes that the bounds of the queues keep from forming."""
    batching = config.dynamic_batching
    if batching is None:
        return
    default, levels = batching.default_queue_policy, range(1, batching.priority_levels + 1)
    queues = [batching.priority_queue_policy.get(level, default) for level in levels[:_LEVELS]]
    bounds = [queue.max_queue_size if queue is not None else 0 for queue in queues or [default]]
    most = sum(bounds)
    if not all(bounds) or len(levels) > _LEVELS:
        return  # a queue without a bound
    sizes = [size for size in batching.preferred_batch_size if size > most]
    if sizes:
        yield Caution(
            "preferred-size-never-forms",
            f"preferred_batch_size {_listed(sizes)} never forms of requests of one row:"
            f" max_queue_size lets no more than {most} of them wait",
            f"max_queue_size: {max(sizes)} or more, or preferred_batch_size: [ {most} ]",
        )


def _candidates(config: ModelConfig) -> Iterator[Caution]:
    """Preferred sizes beyond the sequences whose requests may be joined."""
    oldest = config.sequence_batching.oldest if config.sequence_batching else None
    if oldest is None or oldest.max_candidate_sequences <= 0:
        return
    most = oldest.max_candidate_sequences
    if sizes := [size for size in oldest.preferred_batch_size if size > most]:
        yield Caution(
            "preferred-size-never-forms",
            f"preferred_batch_size {_listed(sizes)} never forms: a batch has one request of each"
            f" sequence, and max_candidate_sequences is {most}",
            f"max_candidate_sequences: {max(sizes)}",
        )


def _crowded(config: ModelConfig, cores: int) -> Iterator[Caution]:
    if (count := sharers(config)) > cores:
        yield Caution(
            "instances-beyond-cores",
            f"instance_group has a count of {count} instances that compute on the CPU, which has"
            f" {cores} cores: they wait for each other",
            f"instance_group [ {{ kind: KIND_CPU count: {cores} }} ], or --cores=N for the"
            " machine that is meant",
        )


def _repeated_tensors(config: ModelConfig) -> Iterator[Caution]:
    for what, tensors in (("input", config.input), ("output", config.output)):
        for name, count in Counter(tensor.name for tensor in tensors).items():
            if count > 1:
                yield Caution(
                    "repeated-tensor",
                    f"{what} '{name}' is declared {count} times; only the last counts",
                    f"declare it once, or give the other {what} its own name",
                )


def _unreachable(files: ModelFiles) -> Iterator[Caution]:
    selected = select_versions(files.config.version_policy, files.versions)
    unreachable = [version for version in files.versions if version not in selected]
    if selected and unreachable:
        yield Caution(
            "unreachable-version",
            f"nobody can reach version {_listed(unreachable)}: version_policy selects"
            f" {_listed(selected)}",
            "version_policy: { all { } }, or remove the folders",
        )


def _unpinned(files: ModelFiles) -> Iterator[Caution]:
    """Weights of a pinned graph that lie in files which are not."""
    pinned = {pin.file for pin in pins_of(files.config)}
    for graph in sorted(name for name in pinned if name.endswith(".onnx")):
        folder = PurePosixPath(graph).parent
        with suppress(ModelLoadError):  # which its backend tells
            for name in sorted(external_files(files.path / graph)):
                if (path := str(folder / name)) not in pinned:
                    yield Caution(
                        "unpinned-weights",
                        f"'{graph}' is pinned, and '{path}', where it has weights, is not",
                        f'parameters {{ key: "{SHA256}{path}" value {{ string_value: "..." }} }}',
                    )


def _is_pointer(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _POINTER_SIZE:
            return False
        return path.read_bytes().startswith(_POINTER)
    except OSError:
        return False


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
