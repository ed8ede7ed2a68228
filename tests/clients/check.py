"""Builds the client examples, runs them against two servers and prints what each language can do.

    make test-clients                    every language, against the demo
    make test-clients ARGS='go rust'     only these
    make test-clients ARGS=--stand-ins   against small stand-ins for the demo's models

Tools that are missing are named with what installs them, and are an error: for a language that is
optional only where it was asked for by name, or with CI=true.
"""

from __future__ import annotations

import argparse
import os
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


def main(arguments: Sequence[str], known: Sequence[Example] = EXAMPLES) -> int:
    """Check the examples; the exit status."""
    chosen = _options(arguments, sorted({example.folder for example in known}))
    examples = [e for e in known if not chosen.folders or e.folder in chosen.folders]
    missing = {example.language: example.missing() for example in examples}
    installed = [example for example in examples if not missing[example.language]]
    rows = _rows(installed, stand_ins=chosen.stand_ins) if installed else []
    _print_table(rows)
    strict = bool(chosen.folders) or os.environ.get("CI") == "true"
    failed = False
    for example in examples:
        if what := missing[example.language]:
            error = strict or not example.optional
            failed = failed or error
            print(
                f"{example.language}: {'ERROR' if error else 'LEFT OUT'}, since {what} is not"
                f" installed; needed: {example.install}"
            )
    if not chosen.folders:
        print("C#: LEFT OUT, since there is no example without a .NET to run it")
    return 0 if not failed and all(cell == "yes" for _, cells in rows for cell in cells) else 1


def _options(arguments: Sequence[str], folders: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("make test-clients")
    parser.add_argument(
        "--stand-ins", action="store_true", help="serve stand-ins, which start in a second"
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=", ".join(folders))
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.folders) - set(folders):
        parser.error(f"there is no client in {', '.join(sorted(unknown))}")
    return chosen


def _rows(examples: Sequence[Example], *, stand_ins: bool) -> list[tuple[str, list[str]]]:
    """The row of each example, by its language."""
    with tempfile.TemporaryDirectory() as folder:
        models = STAND_INS if stand_ins else _demo(Path(folder) / "models")
        with servers(Path(folder), models) as both:
            return [(example.language, _checked(example, *both)) for example in examples]


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
