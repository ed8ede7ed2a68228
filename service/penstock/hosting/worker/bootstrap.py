"""Starts a model process: `bootstrap.py MODULE:FUNCTION SOCKET INPUTS OUTPUTS PACKAGE_DIR...`.

Run by path, also by another interpreter than the server's (an engine's own environment), where
Penstock is not installed. So it makes just the named packages importable, and nothing else of the
environment that they are installed in.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from io import TextIOWrapper
from pathlib import Path


def offer(directory: Path) -> None:
    """Make the package in `directory` importable under the directory's name.

    Also where the environment has one of that name: both ends of the link must be of one version.
    """
    name = directory.name
    spec = importlib.util.spec_from_file_location(
        name, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


def main() -> None:
    # Signals of the terminal are for the server alone. A session of its own would do that, too,
    # but Linux shares processors between sessions before threads (autogroups): a server whose
    # engine keeps all of them busy would then wait for tens of milliseconds before it runs.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # on a pipe, of which the server copies whole lines
            stream.reconfigure(line_buffering=True)
    target, connection, inputs, outputs, *packages = sys.argv[1:]
    for directory in packages:
        offer(Path(directory))
    module, _, function = target.partition(":")
    # What is imported stays: looking for garbage in it would be a tenth of the time to a start.
    gc.disable()
    run = getattr(importlib.import_module(module), function)
    gc.freeze()
    gc.enable()
    run(int(connection), int(inputs), int(outputs))


if __name__ == "__main__":
    main()
