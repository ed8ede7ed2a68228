"""Which rooms of a compiled server use its processor, by `perf`.

Each sample of the stack counts for the innermost compiled function of ours that is on it: what that
function has Python, numpy, uvloop, the C library or the kernel do is its own. Names of compiled
functions begin with those of their modules, shortened as far as they are unambiguous; this undoes
it. Samples without any such function are the event loop's and what is not compiled.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_COMPILED = re.compile(r"^(?:CPyDef|CPyPy|CPyGen|CPyDefUnbox)_(\w+)")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(")
_HERTZ = 499
_STACK = 16384
"""Bytes of the stack in each sample: Python's own calls are deep."""
NOWHERE = "event loop, interpreted"


class Rooms:
    """The rooms of functions, by their names in a library.

    Args:
        modules: Names of the compiled modules, such as `penstock.rpc.servicer`.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        counts = Counter(suffix for module in modules for suffix in _suffixes(module))
        self._modules = {
            next((s for s in _suffixes(module) if counts[s] == 1), module).replace(
                ".", "___"
            ): module
            for module in modules
        }
        self._lengths = sorted({len(name) for name in self._modules}, reverse=True)

    def module(self, function: str) -> str | None:
        """The module of a function, if it is one of these."""
        found = _COMPILED.match(function)
        if found is None:
            return None
        name = found[1]
        for length in self._lengths:
            if name[length : length + 3] == "___" and name[:length] in self._modules:
                return self._modules[name[:length]]
        return None

    def tally(self, stacks: Iterable[Sequence[str]]) -> Mapping[str, float]:
        """Parts of all samples by module; frames begin with the innermost."""
        counts: Counter[str] = Counter()
        for stack in stacks:
            counts[next(filter(None, map(self.module, stack)), NOWHERE)] += 1
        total = max(counts.total(), 1)
        return {module: count / total for module, count in counts.most_common()}


def compiled_modules(site: Path) -> list[str]:
    """The compiled modules of the packages in a folder."""
    files = (
        file for name in ("penstock", "penstock_backends") for file in (site / name).rglob("*.so")
    )
    names = [file.relative_to(site).with_name(file.name.partition(".")[0]) for file in files]
    return [".".join(name.parts) for name in names if not name.name.endswith("__mypyc")]


def missing() -> str:
    """Why nothing can be profiled here; empty if it can."""
    return "" if shutil.which("perf") else "there is no perf (Debian: linux-perf)"


@contextmanager
def profiled(pid: int, stacks: list[list[str]]) -> Iterator[None]:
    """Profile a process while this is open, and add its stacks to the list."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "perf.data")
        record = ["perf", "record", "--quiet", f"--freq={_HERTZ}", "--event=cpu-clock"]
        record += [f"--call-graph=dwarf,{_STACK}", f"--pid={pid}", f"--output={file}"]
        process = subprocess.Popen(record, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()  # it writes what it has
            process.wait()
        told = subprocess.run(
            ["perf", "script", "--no-inline", "--fields=ip,sym,dso", f"--input={file}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        stacks.extend(read_stacks(told.stdout))


def read_stacks(printed: str) -> Iterator[list[str]]:
    """The stacks that `perf script` prints, each from its innermost function outwards."""
    for block in printed.split("\n\n"):
        frames = [found[1] for line in block.splitlines() if (found := _FRAME.match(line))]
        if frames:
            yield frames


def _suffixes(module: str) -> list[str]:
    """The ends of a module's name, the shortest first."""
    parts = module.split(".")
    return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
