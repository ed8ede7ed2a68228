"""What each engine for tensors costs: lines of its adapter, its installation and its import.

    .venv/bin/python -m loadtest.engine_costs [--lines] [ENGINE ...]

Each extra is installed in an environment of its own, beside what the server needs anyway; its size
is what it takes on the disk beyond that. The import is the median of five in new processes, in
seconds of processor time, which others on the machine change little. Prints the rows of the table
in docs/tensor-models.md; with `--lines`, only lines, of each file too, and installs nothing.
"""

from __future__ import annotations

import ast
import io
import json
import resource
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_ROOT = Path(__file__).parents[1]
_UV = _ROOT / ".venv" / "bin" / "uv"
_TIMES = 5
_MEASURED = """
import json, resource, sys, time
import numpy
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, began = most(), time.process_time()
__import__(sys.argv[1])
print(json.dumps([time.process_time() - began, most() - before]))
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """An adapter, the extra that brings its engine, and the module that it imports."""

    adapter: str
    extra: str
    module: str


ENGINES = (
    Engine("onnxruntime", "onnx", "onnxruntime"),
    Engine("openvino", "openvino-runtime", "openvino"),
    Engine("tensorflow", "tensorflow", "tensorflow"),
    Engine("fil", "fil", "treelite"),
    Engine("pytorch", "torch", "torch"),
    Engine("tensorrt", "", ""),  # NVIDIA's index has it, and it imports only where CUDA is
)


SHARED = "tensor_models"
"""The package of what adapters share."""

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def main(names: Sequence[str]) -> None:
    if "--lines" in names:
        for name in [*(engine.adapter for engine in ENGINES), SHARED]:
            files = sorted(lines_by_file(name).items(), key=lambda item: -item[1])
            parts = ", ".join(f"{file} {lines}" for file, lines in files)
            print(f"| `{name}` | {sum(lines for _, lines in files):,} | {parts} |")
        return
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    needed, extras = project["dependencies"], project["optional-dependencies"]
    chosen = [engine for engine in ENGINES if not names or engine.adapter in names]
    with tempfile.TemporaryDirectory(dir=_ROOT / "build") as temporary:
        base = size_of(installed(Path(temporary) / "base", needed))
        for engine in chosen:
            cells = [f"`{engine.adapter}`", f"{lines_of(engine.adapter):,}"]
            if engine.extra:
                folder = Path(temporary) / engine.extra
                python = installed(folder, [*needed, *extras[engine.extra]])
                seconds, mib = imported(python, engine.module)
                cells += [f"`{engine.extra}`", f"{size_of(python) - base:,.0f}"]
                cells += [f"{seconds:.2f}", f"{mib:.0f}"]
            else:
                cells += ["-"] * 4
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"beside the server's own {base:.0f} MB; most memory {_most():.0f} MiB", file=sys.stderr)


def lines_of(adapter: str) -> int:
    """The lines of an adapter that hold code."""
    return sum(lines_by_file(adapter).values())


def lines_by_file(adapter: str) -> dict[str, int]:
    """The lines of each file that hold code: no empty ones, comments or docstrings."""
    folder = _ROOT / "backends" / "penstock_backends" / adapter
    return {file.stem: _lines_of_code(file.read_text()) for file in folder.rglob("*.py")}


def _lines_of_code(text: str) -> int:
    told = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in _NO_CODE)
    return len({line for lines in held for line in lines} - told)


def installed(folder: Path, packages: Sequence[str]) -> Path:
    """The Python of a new environment with these packages."""
    subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    install = (_UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", python)
    subprocess.run([*install, *packages], check=True)
    return python


def size_of(python: Path) -> float:
    """Megabytes of an environment; compiled files count, as they are made sooner or later."""
    files = [file for file in python.parents[1].rglob("*") if not file.is_symlink()]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def imported(python: Path, module: str) -> tuple[float, float]:
    """Seconds of processor time and MiB of an import, beyond Python's and numpy's own."""
    command = [str(python), "-c", _MEASURED, module]
    runs = []
    for _ in range(_TIMES + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, mib = zip(*runs[1:], strict=True)
    return median(seconds), median(mib)


def _most() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
