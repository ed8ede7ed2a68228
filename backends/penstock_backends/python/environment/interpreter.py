"""The interpreter of a model's environment: where it is, and whether it is fit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from penstock.core.errors import ModelLoadError

_OLDEST = (3, 11)
_PROBE = "import sys; sys.stdout.write('\\n%d %d' % sys.version_info[:2]); import numpy"


def find_python(directory: Path) -> Path:
    """The interpreter of an environment; raises `ModelLoadError` if it has none."""
    python = directory / "bin" / "python"
    if not python.exists():
        raise ModelLoadError(f"the environment '{directory}' has no bin/python")
    return python


def check_python(directory: Path) -> Path:
    """As `find_python`; the interpreter runs, is new enough and has numpy."""
    python = find_python(directory)
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
    # On the last line, as code that the environment runs at startup may print.
    version = tuple(map(int, probe.stdout.rpartition("\n")[2].split()))
    if version and version < _OLDEST:
        needed, found = (".".join(map(str, numbers)) for numbers in (_OLDEST, version))
        raise ModelLoadError(f"'{python}' is Python {found}; models need {needed} or newer")
    if probe.returncode:
        *_, why = ["it printed no error", *probe.stderr.strip().splitlines()]
        failed = "import numpy" if version else "be run"
        raise ModelLoadError(f"'{python}' cannot {failed}: {why}")
    return python
