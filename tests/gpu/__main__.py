"""Runs the tests of GPUs: `python tests/gpu [ARGUMENTS OF pytest]`.

With what `pack.py` has packed, if that is there, in front of the packages of this Python; without
it, this Python needs `penstock` and the tools of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = ("-p", "pytest_asyncio.plugin")
"""The only plugins: those that a machine has beside them may warn, and warnings are errors."""


def environment(manifest: Path) -> dict[str, str]:
    """The environment of pytest; raises `SystemExit` where the packages are for another Python."""
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if not manifest.exists():
        return variables
    packages, packed = manifest.parent, json.loads(manifest.read_text())["python"]
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if packed != mine:
        raise SystemExit(
            f"{packages} is for Python {packed}, and this is {mine}: pack it anew, with"
            f" --python-version={mine}"
        )
    paths = [packages, *(ROOT / source for source in ("service", "backends", "client"))]
    before = [variables["PYTHONPATH"]] if variables.get("PYTHONPATH") else []
    variables["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *before])
    return variables


def main(arguments: Sequence[str]) -> int:
    from gpu.pack import MANIFEST, PACKAGES

    command = [sys.executable, "-m", "pytest", *PLUGINS, "-q", "-rs", "-p", "no:cacheprovider"]
    command += ["tests/gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(PACKAGES / MANIFEST)).returncode


if __name__ == "__main__":
    sys.path[0] = str(ROOT / "tests")  # as pytest has it, in place of this folder
    raise SystemExit(main(sys.argv[1:]))
