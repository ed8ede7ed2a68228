"""Cuts each wire from a configuration, a setting or an option to its reader, and asks the tests.

    python -m tests.wiring record [FOLDER ...]    run door tests, and keep what they read (an hour)
    python -m tests.wiring cut [WIRE ...]         make the cuts, of all wires or of these (an hour)
    python -m tests.wiring report                 what became of them, as docs/wiring.md has it

A cut is noticed if a test in which a server answers fails; `docs/wiring.md` says more. What is kept
lies in `build/wiring`; folders that were recorded, and wires that were cut, are passed over until
it is removed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .cutting import cut_all, jobs, outcomes
from .recording import load, record
from .report import lines
from .tree import ROOT, Tree
from .wires import all_wires

_KEPT = ROOT / "build/wiring"
_RECORDED = _KEPT / "recorded"
_OUTCOMES = _KEPT / "cuts.out"
_SECONDS = 1800.0
"""For the tests of a folder."""
_FOLDERS = (
    *("app", "cli", "in_process", "caching", "clients", "client", "demo", "tracing/served"),
    *("gateway", "rpc", "top/live", "conformance", "deployment", "models/loading", "perf"),
    *("backends/onnxruntime", "backends/openvino_genai", "backends/python"),
    *("backends/tensor_models", "backends/tensorrt_llm", "backends/vllm"),
)
"""Folders with tests in which a server answers."""


def main(words: Sequence[str]) -> int:
    """Do one of the steps; the exit status is 2 for wrong words."""
    step, *names = words or [""]
    if step == "record":
        _record(names or _FOLDERS)
    elif step == "cut":
        _cut(names)
    elif step == "report":
        print("\n".join(lines(list(outcomes(_OUTCOMES)))))
    else:
        print(__doc__)
        return 2
    return 0


def _record(folders: Sequence[str]) -> None:
    tree = Tree(_KEPT / "tree")
    tree.lay()
    for folder in folders:
        kept = _RECORDED / f"{folder.replace('/', '.')}.json"
        if kept.exists():
            continue
        found = record(tree, folder, _SECONDS)
        found.save(kept)
        print(f"{folder}: {len(found.seconds)} tests, {len(found.given)} wires", flush=True)


def _cut(wires: Sequence[str]) -> None:
    done = {each["wire"] for each in outcomes(_OUTCOMES)}
    work = jobs(load(_RECORDED), wires or [wire for wire in all_wires() if wire not in done])
    print(f"{len(work)} cuts", flush=True)
    tree = Tree(_KEPT / "tree")
    tree.lay()
    cut_all(tree, work, _OUTCOMES.with_suffix(".json"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
