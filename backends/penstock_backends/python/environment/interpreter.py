"""The Python of an environment that a model brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from penstock.core.errors import ModelLoadError

_OLDEST = (3, 11)
_PROBE = "import sys; sys.stdout.write('\\n%d %d' % sys.version_info[:2]); import numpy"


def python_in(directory: Path) -> Path:
    python = directory / "bin" / "python"
    if not python.exists():
        raise ModelLoadError(f"the environment '{directory}' has no bin/python")
    return python


def checked(directory: Path) -> Path:
    """Its Python, which has what the process of a model needs of it."""
    python = python_in(directory)
    try:
        probe = subprocess.run(
            [str(python), "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ModelLoadError(f"'{python}' cannot be run: {error}") from error
    # On the last line, since what the environment runs at the start may print.
    version = tuple(map(int, probe.stdout.rpartition("\n")[2].split()))
    if version and version < _OLDEST:
        needed, found = (".".join(map(str, numbers)) for numbers in (_OLDEST, version))
        raise ModelLoadError(f"'{python}' is Python {found}; models need {needed} or newer")
    if probe.returncode:
        *_, why = ["it says nothing", *probe.stderr.strip().splitlines()]
        failed = "import numpy" if version else "be run"
        raise ModelLoadError(f"'{python}' cannot {failed}: {why}")
    return python
