"""`python -m penstock.in_process SCRIPT [ARGUMENT ...]` runs a script for Triton's API."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from penstock.in_process.aliases import install


def main(words: list[str]) -> int:
    """Run the script as Python would, with `tritonserver` and `tritonfrontend` importable."""
    if not words or words[0].startswith("-"):
        print("usage: python -m penstock.in_process SCRIPT [ARGUMENT ...]", file=sys.stderr)
        return 2
    script = words[0]
    if not Path(script).is_file():
        print(f"penstock.in_process: there is no file '{script}'", file=sys.stderr)
        return 2
    install()
    sys.argv = words
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
