"""Files of engines given as arguments, such as `resnet.onnx`, or the folder of a SavedModel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NoReturn

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.core.file_names import wrong_name
from penstock.models.config.pbtxt import read_pbtxt
from penstock.models.sizing.headers.onnx import external_files
from penstock.models.sources.declared import (
    Declared,
    Program,
    damage,
    exported_program,
    is_classifier,
    lines_of,
    scripted_program,
)
from penstock.models.sources.draft import NO_WISHES, Draft, SourceError, Wishes, safe_name
from penstock.settings import Task


@dataclass(frozen=True, slots=True)
class _Format:
    backend: str
    platform: str = ""
    model_type: str = ""
    """The format's name among those of the backend `fil`."""


_FORMATS = {
    ".onnx": _Format("onnxruntime"),
    ".xml": _Format("openvino"),
    ".tflite": _Format("openvino"),
    ".pt": _Format("pytorch", "pytorch_libtorch"),
    ".pt2": _Format("pytorch", "torch_aoti"),
    ".plan": _Format("tensorrt"),
    ".ubj": _Format("fil", model_type="xgboost_ubj"),
    ".txt": _Format("fil", model_type="lightgbm"),
    ".tl": _Format("fil", model_type="treelite_checkpoint"),
}
"""By the endings of files."""

_SAVED_MODEL = _Format("tensorflow", "tensorflow_savedmodel")

FILE_ENDINGS = tuple(_FORMATS)
ENDINGS = ", ".join(FILE_ENDINGS)
_ALONE = _FORMATS.keys() - {".txt"}
"""The endings that are a model's, whatever lies in the same folder; texts are of all kinds."""

_TREES = """\
# true for classes, false for what the trees add up to
parameters { key: "is_classifier" value: { string_value: "true" } }
"""
_DIMS = "without the batch's dimension where max_batch_size is not 0"
_ARGUMENTS = f"""\
# forward's arguments and results; data types and dims are yours to say, these
# {_DIMS}
"""
_ANY = f"""\
# names of forward's arguments, or NAME__NUMBER; dims
# {_DIMS}
"""
_EXAMPLE = Program((Declared("input__0", "FP32", (-1,)),), (Declared("output__0", "FP32", (-1,)),))
"""The tensors that are shown of a program whose file does not say any."""


def engine_file(name: str, path: Path, wishes: Wishes = NO_WISHES) -> Draft | None:
    """The model of a file or folder, by default called as it is; `None` if no engine has it.

    Its configuration is that of the file of its name that ends in `.pbtxt`, if there is one, and
    what follows from its ending, or from the file itself. Raises `SourceError`.
    """
    found = _SAVED_MODEL if (path / "saved_model.pb").is_file() else _FORMATS.get(path.suffix)
    if found is None:
        return None
    if not path.exists():
        raise SourceError(f"there is no file '{path}'")
    beside = path.with_suffix(".pbtxt")
    text, config = _read(beside)
    draft = Draft(name or model_name(path), config=config, own_text=text)
    known = _derived(found, path, draft, wishes)
    if missing := "".join(_missing(found, config, known, path)):
        if path.is_file() and (why := damage(path)):
            raise SourceError(f"'{path}' {why}")
        raise SourceError(
            f"'{path}' does not say how it is served. Write these lines, changed to what is true of"
            f" the model, into '{beside}':\n\n{missing}"
        )
    draft.links = {entry.name: entry for entry in _companions(path) if entry != beside}
    draft.links |= {name: _there(path, name) for name in external_data(path)}
    for entry in filter(_is_data, path.parent.iterdir()):
        draft.beside |= {entry.name: entry, f"../{entry.name}": entry}  # labels belong above
    ending = path.suffix if path.is_file() else "a SavedModel"
    draft.backend(found.backend, f"which reads {ending}", found.platform)
    draft.filename(path.name, "the file's own name")
    if found.model_type:
        draft.parameter("model_type", found.model_type, f"the format of {ending}")
    return draft


def lone_file(folder: Path) -> Path | None:
    """The model in a folder that holds one and no folders; `None` where there is none.

    Raises `SourceError` where there are several, and `OSError`.
    """
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    found = [entry for entry in entries if entry.suffix in _ALONE]
    if not found or any(entry.is_dir() for entry in entries):
        return None
    if len(found) > 1:
        names = ", ".join(entry.name for entry in found)
        raise SourceError(f"'{folder}' has several models: {names}; give one of them")
    return found[0]


def _companions(path: Path) -> Iterator[Path]:
    """The file, and those beside it that are parts of the model: weights, or a mapping."""
    yield path
    if path.is_file():
        for entry in sorted(path.parent.iterdir()):
            if entry != path and goes_with(path, entry.name) and _is_data(entry):
                yield entry


def goes_with(path: PurePath, name: str) -> bool:
    """Whether a file of that name, beside a model, is a part of it."""
    return name.startswith((f"{path.stem}.", f"{path.name}_", f"{path.name}."))


def external_data(path: Path) -> list[str]:
    """The paths of files that have weights of an ONNX file, from its folder on; they may lack.

    None of a file that is no graph, which its engine tells.
    """
    if path.suffix != ".onnx":
        return []
    try:
        return sorted(name for name in external_files(path) if not wrong_name(name))
    except ModelLoadError:
        return []


def _there(path: Path, name: str) -> Path:
    found = path.parent / name
    if not found.is_file():
        raise SourceError(f"'{path}' has its weights in '{found}', which is not there")
    return found


def _is_data(entry: Path) -> bool:
    """Whether a model may need it: weights, labels, a tokenizer; not whole folders."""
    return not entry.name.startswith(".") and entry.name != "config.pbtxt" and entry.is_file()


def _read(path: Path) -> tuple[str, ModelConfig]:
    """A configuration that lies beside a model, and its text; an empty one if none does."""
    if not path.exists():
        return "", ModelConfig()
    try:
        return path.read_text(errors="replace"), read_pbtxt(path)
    except (ConfigError, OSError) as error:
        raise SourceError(str(error)) from error


def _derived(found: _Format, path: Path, draft: Draft, wishes: Wishes) -> set[str]:
    """Add what the file says, or the user; the fields that are known by it."""
    if wishes.task is not None and not (found.backend == "fil" and wishes.task is Task.CLASSIFY):
        refuse_task(str(path), wishes.task)
    if found.backend == "fil" and not _has_classes(draft.config):
        told = ("true", "as --task says") if wishes.task else is_classifier(path)
        if told is not None:
            draft.parameter("is_classifier", *told)
            return {"is_classifier"}
    if path.suffix == ".pt2" and (program := exported_program(path)) is not None:
        return set(_add_tensors(program, draft, batched=bool(wishes.max_batch_size)))
    return set()


def refuse_task(source: str, task: Task) -> NoReturn:
    """Refuse a task of what has one already."""
    raise SourceError(
        f"--task={task}: '{source}' takes none: it is of models in the layout of Hugging Face, and"
        " 'classify' of forests; where models of several kinds are given, start it without"
    )


def _add_tensors(program: Program, draft: Draft, *, batched: bool) -> Iterator[str]:
    config = draft.config
    every = (*program.inputs, *program.outputs)
    batched = batched or config.max_batch_size > 0
    if batched and any(each.dims[:1] != (-1,) for each in every):
        raise SourceError(
            f"'{draft.name}' takes no batches: not all of its tensors begin with a dimension of any"
            " size; export it with dynamic_shapes"
        )
    why = "the program's own" + (", less the dimension of batches" if batched else "")
    for field, tensors in (("input", program.inputs), ("output", program.outputs)):
        if not getattr(config, field):
            for line in lines_of(tensors, field, batched=batched):
                draft.add(line, why)
            yield field


def _has_classes(config: ModelConfig) -> bool:
    return "is_classifier" in config.parameters or "output_class" in config.parameters


def _missing(
    found: _Format, config: ModelConfig, known: Collection[str], path: Path
) -> Iterator[str]:
    """The lines that the file does not say, and its backend requires."""
    if found.backend == "fil" and not _has_classes(config) and "is_classifier" not in known:
        yield _TREES
    if found.backend != "pytorch":
        return
    fields = [field for field in ("input", "output") if not getattr(config, field)]
    if lacking := [field for field in fields if field not in known]:
        said = scripted_program(path)
        yield _ARGUMENTS if said else _ANY
        tensors = dict(zip(("input", "output"), said or _EXAMPLE, strict=True))
        for field in lacking:
            yield from (f"{line}\n" for line in lines_of(tensors[field], field, batched=False))


def model_name(path: Path, ending: str | None = None) -> str:
    """The file's name without its ending; that of the folder for `model`, or for a number."""
    if ending is None:
        ending = path.suffix if path.is_file() else ".savedmodel"
    name = path.name.removesuffix(ending)
    while (name == "model" or name.isdecimal()) and path.parent != path:
        path = path.parent
        name = path.name
    return safe_name(name)
