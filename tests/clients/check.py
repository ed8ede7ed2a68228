"""Builds the client examples, runs them against two servers and prints what each language can do.

make test-clients                  every language whose tools are installed
make test-clients ARGS='go rust'   only these
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from clients.languages import (
    EXAMPLES,
    FEATURES,
    STAND_INS,
    Example,
    ExampleError,
    Server,
    servers,
)
from penstock.demo import write_demo

_COLUMNS = (*FEATURES, "TLS")
_WIDTH = 10


def main(arguments: Sequence[str]) -> int:
    """Check the examples; the exit status."""
    parser = argparse.ArgumentParser("make test-clients")
    parser.add_argument("--demo", action="store_true", help="serve the demo, not its stand-ins")
    folders = sorted({example.folder for example in EXAMPLES})
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=", ".join(folders))
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.folders) - set(folders):
        parser.error(f"there is no client in {', '.join(sorted(unknown))}")
    examples = [e for e in EXAMPLES if not chosen.folders or e.folder in chosen.folders]
    missing = {example.language: example.missing() for example in examples}
    installed = [example for example in examples if not missing[example.language]]
    with tempfile.TemporaryDirectory() as folder:
        models = _demo(Path(folder) / "models") if chosen.demo else STAND_INS
        with servers(Path(folder), models) as both:
            rows = [(example.language, _checked(example, *both)) for example in installed]
    _print_table(rows)
    for language, what in missing.items():
        if what:
            print(f"{language}: LEFT OUT, since {what} is not installed")
    if not chosen.folders:
        print("C#: LEFT OUT, since there is no example without a .NET to run it")
    return 0 if all(cell == "yes" for _, cells in rows for cell in cells) else 1


def _demo(repository: Path) -> Path:
    """The demo's models, and the one that refuses, which only the examples know."""
    write_demo(repository, report=lambda line: None)
    shutil.copytree(STAND_INS / "flaky", repository / "flaky")
    return repository


def _checked(example: Example, plain: Server, secure: Server) -> list[str]:
    """The row of an example, a cell for each column."""
    begin = time.monotonic()
    try:
        example.build()
        built = time.monotonic()
        found = example.ask(plain)
        over_tls = example.ask(secure)
    except ExampleError as error:
        print(f"{example.language}: {error}", file=sys.stderr)
        return ["NO"] * len(_COLUMNS)
    end = time.monotonic()
    print(f"{example.language}: built in {built - begin:.1f} s, run twice in {end - built:.1f} s")
    return [
        *("yes" if feature in found else "NO" for feature in FEATURES),
        "yes" if over_tls == found else "NO",
    ]


def _print_table(rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    print()
    for name, cells in (("", _COLUMNS), *rows):
        print(f"{name:<16}" + "".join(f"{cell:<{_WIDTH}}" for cell in cells).rstrip())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
