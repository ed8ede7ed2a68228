"""Which of PyTorch's kinds of files a model is, by the names in its archive: without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from penstock.backend import ArchiveError, ModelConfig, ModelLoadError, zip_members
from penstock_backends.pytorch.settings import TorchSettings

_EXPORTED = ("models/model.json", "serialized_exported_program.json")


class FileKind(Enum):
    """The kind of a file's content."""

    MODULE = auto()
    """Code in Python, with weights beside it or without."""
    COMPILED = auto()
    EXPORTED = auto()
    SCRIPT = auto()
    PICKLE = auto()


def kind_of(config: ModelConfig, path: Path) -> FileKind:
    """The kind of a file; raises `ModelLoadError` for an archive beyond the limits.

    The weights beside a module are held to them, too.
    """
    if path.suffix == ".py":
        if (weights := path.with_suffix(".pt")).is_file():
            _members(config, weights)
        return FileKind.MODULE
    names = _members(config, path)
    if any("/data/aotinductor/" in name for name in names):
        return FileKind.COMPILED
    if any(name.endswith(_EXPORTED) for name in names):
        return FileKind.EXPORTED
    if any(name.endswith("/constants.pkl") for name in names):
        return FileKind.SCRIPT
    if not names:
        _check_early(config, path)
    return FileKind.PICKLE


def _check_early(config: ModelConfig, path: Path) -> None:
    """Refuse a file that is no archive, unless it is what `torch.save` wrote before them."""
    with path.open("rb") as file:
        start = file.read(512)
    if start[:1] == b"\x80" or start[257:262] == b"ustar":  # a pickle, or an archive of tar
        return
    if not start:
        why = "it is empty"
    elif start.startswith(b"PK"):
        why = "it is cut off: the directory at the end of its archive is not there"
    else:
        why = "it is no file of PyTorch"
    raise ModelLoadError(f"failed to load model '{config.name}': '{path}' cannot be read: {why}")


def _members(config: ModelConfig, path: Path) -> Sequence[str]:
    """The names in an archive; none in a file of the time before them."""
    try:
        return zip_members(path)
    except ArchiveError as error:
        raise ModelLoadError(
            f"failed to load model '{config.name}': {path} is refused: {error}"
        ) from error


def check_host(config: ModelConfig, path: Path, kind: FileKind, settings: TorchSettings) -> None:
    """Refuse, on threads of the server, what Python's lock is held for. Raises `ModelLoadError`."""
    if settings.on_threads and kind not in (FileKind.SCRIPT, FileKind.EXPORTED):
        raise ModelLoadError(
            f"failed to load model '{config.name}': '{path}' would hold up the server: where"
            " parameter 'penstock.host' is 'thread', models are TorchScript or of torch.export"
        )


def check_program(config: ModelConfig, path: Path, settings: TorchSettings) -> None:
    """Refuse what a load does, as far as the names in the archive say it; a pickle is one of the
    two that PyTorch tells apart. Raises `ModelLoadError`.
    """
    kind = kind_of(config, path)
    check_host(config, path, kind, settings)
    if kind is FileKind.PICKLE and not settings.allows_pickle:
        raise ModelLoadError(
            f"failed to load model '{config.name}': '{path}' is neither TorchScript nor a package:"
            " a file of torch.save has weights alone, or would run code while it is read; save it"
            " with torch.jit.save or torch.export.save, or put the module that the weights belong"
            ' to into model.py beside it, and runtime: "model.py" into the configuration, or start'
            " the server with --allow-unsafe-models=true"
        )
