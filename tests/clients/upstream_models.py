"""Serves the examples of Triton's Python backend, runs their clients, and prints what passed.

    git clone https://github.com/triton-inference-server/python_backend
    make .venv/.test
    PYTHONPATH=tests .venv/bin/python -m clients.upstream_models python_backend

Models and clients are upstream's, unchanged, in repositories as upstream's own script makes them,
`qa/L0_backend_python/examples`. Clients ask Triton's default ports. What is not installed, as
torch, is named.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.upstream import FAILED, PASSED, LeftOutError, Result, default_ports, run_program
from harness.serving import serving

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True, slots=True)
class Model:
    """A model's files in `examples`: `model.py` and, where there is one, `config.pbtxt`."""

    name: str
    code: str
    config: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A client in `examples`, and the models that it asks."""

    client: str
    models: tuple[Model, ...]


def _model(name: str, folder: str, prefix: str = "") -> Model:
    return Model(name, f"{folder}/{prefix}model.py", f"{folder}/{prefix}config.pbtxt")


_ADD_SUB = _model("add_sub", "add_sub")
_PYTORCH = _model("pytorch", "pytorch")
_SQUARE = _model("square_int32", "decoupled", "square_")
_CALLING = "bls_error_code/bls_error_caller"
_REFUSING = "bls_error_code/error_source"

EXAMPLES = (
    Example("add_sub/client.py", (_ADD_SUB,)),
    Example("pytorch/client.py", (_PYTORCH,)),
    Example("jax/client.py", (_model("jax", "jax"),)),
    Example(
        "auto_complete/client.py",
        (
            Model("nobatch_auto_complete", "auto_complete/nobatch_model.py"),
            Model("batch_auto_complete", "auto_complete/batch_model.py"),
        ),
    ),
    Example("decoupled/repeat_client.py", (_model("repeat_int32", "decoupled", "repeat_"),)),
    Example("decoupled/square_client.py", (_SQUARE,)),
    Example("bls/sync_client.py", (_ADD_SUB, _PYTORCH, _model("bls_sync", "bls", "sync_"))),
    Example("bls/async_client.py", (_ADD_SUB, _PYTORCH, _model("bls_async", "bls", "async_"))),
    Example(
        "bls_decoupled/sync_client.py",
        (_SQUARE, _model("bls_decoupled_sync", "bls_decoupled", "sync_")),
    ),
    Example(
        "bls_decoupled/async_client.py",
        (_SQUARE, _model("bls_decoupled_async", "bls_decoupled", "async_")),
    ),
    Example("custom_metrics/client.py", (_model("custom_metrics", "custom_metrics"),)),
    Example(
        "bls_error_code/test_error_code_propagation.py",
        (
            Model("bls_error_caller", f"{_CALLING}/1/model.py", f"{_CALLING}/config.pbtxt"),
            Model("error_source", f"{_REFUSING}/1/model.py", f"{_REFUSING}/config.pbtxt"),
        ),
    ),
)


def perform(example: Example, folder: Path, place: Path, options: Sequence[str]) -> Result:
    """Serve the models of an example, with `options`, from a repository in `place`; run the client.

    `folder` is upstream's `examples`.
    """
    repository, log = place / "models", place / "log"
    for model in example.models:
        (repository / model.name / "1").mkdir(parents=True)
        shutil.copy(folder / model.code, repository / model.name / "1" / "model.py")
        if model.config:
            shutil.copy(folder / model.config, repository / model.name / "config.pbtxt")
    with serving(repository, log, "--exit-on-error=false", *options):
        if missing := _MISSING.search(log.read_text()):
            return Result(f"{missing[1]} is not installed")
        return run_program(folder / example.client, (), ("PASS",))


def main(arguments: Sequence[str]) -> int:
    """Run all examples of a checkout; the exit status."""
    parser = argparse.ArgumentParser("clients.upstream_models")
    parser.add_argument("folder", type=Path, help="a checkout of Triton's python_backend")
    folder = parser.parse_args(arguments).folder / "examples"
    examples = [example for example in EXAMPLES if (folder / example.client).is_file()]
    if not examples:
        parser.error(f"there are no examples of Triton's in {folder}")
    try:
        ports = default_ports()
    except LeftOutError as reason:
        parser.error(f"{reason}, which the clients ask")
    verdicts = []
    for example in examples:
        with tempfile.TemporaryDirectory() as place:
            result = perform(example, folder, Path(place), ports)
        print(f"{result.verdict:<6} {example.client}", flush=True)
        if result.verdict == FAILED:
            print(result.printed, file=sys.stderr)
        verdicts.append(result.verdict)
    print(f"{len(verdicts)} examples, {verdicts.count(PASSED)} passed")
    return 1 if FAILED in verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
