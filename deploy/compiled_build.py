"""Keeps compiled builds by what they were made from, and finds the one for these sources.

    python deploy/compiled_build.py key               what a build of these sources is kept by
    python deploy/compiled_build.py keep KEY FOLDER   keep the newest compiled wheel of the folder
    python deploy/compiled_build.py find              print the folder of the build, if there is one
    python deploy/compiled_build.py import            import all modules of what is installed

`make serve` serves from a build that is kept, and from the sources where there is none: it never
compiles. A build is a wheel, unpacked: the packages with their compiled modules, whose folder comes
first in `PYTHONPATH`. It lies in `build/compiled`, or where all clones of a user see it, in
`$XDG_CACHE_HOME/penstock/compiled`. The key is of all files of the packages, of what says how they
are compiled, and of Python's version and platform; so whatever is changed, no stale build serves.

What compiles may still refuse to be imported: a class that derives from one that it may not.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("service/penstock", "backends/penstock_backends")
_INSTALLED = ("penstock", "penstock_backends", "penstock_client")
_RECIPE = ("hatch_build.py", "pyproject.toml")
_MOST = 4
"""Builds that are kept, each of about 40 MB."""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["key"]:
            print(key())
        case ["keep", made_from, folder]:
            print(f"==> {keep(made_from, Path(folder))}")
        case ["find"]:
            if (found := find()) is not None:
                print(found)
        case ["import"]:
            failed = import_all(Path(sysconfig.get_path("purelib")))
            print(*failed, sep="\n", end="\n" if failed else "", file=sys.stderr)
            return 1 if failed else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def key(root: Path = ROOT) -> str:
    """What these sources are, for this Python: the name of the folder of their build."""
    told = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')} {sys.platform}".encode())
    for file in sorted(_sources(root)):
        told.update(f"{file.relative_to(root)} {file.stat().st_size} ".encode())
        told.update(file.read_bytes())
    return told.hexdigest()[:32]


def find(root: Path = ROOT) -> Path | None:
    """The folder of the build of these sources, for this Python."""
    name = key(root)
    found = next((folder / name for folder in _shelves(root) if (folder / name).is_dir()), None)
    if found is not None:
        with suppress(OSError):
            os.utime(found)  # what is served from is not the oldest
    return found


def keep(made_from: str, wheels: Path, root: Path = ROOT) -> str:
    """Keep the newest compiled wheel of a folder, and say so, or why not.

    Args:
        made_from: The key of the sources before they were compiled.
        wheels: Where the wheel of `penstock` is.
        root: The repository.
    """
    if key(root) != made_from:
        return "the sources were changed while they were compiled: `make serve` does not take this"
    tag = sys.implementation.cache_tag.replace("cpython-", "cp")
    machine = platform.machine()
    made = sorted(
        wheels.glob(f"penstock-*-{tag}-*{machine}.whl"), key=lambda file: file.stat().st_mtime
    )
    if not made:
        return f"{wheels} has no compiled wheel for this Python"
    for shelf in reversed(_shelves(root)):  # the one of all clones, if that can be written
        with suppress(OSError):
            kept = shelf / made_from
            if kept.is_dir():  # a server may run from it
                os.utime(kept)
            else:
                _unpack(made[-1], kept)
            _trim(shelf, kept)
            return f"`make serve` takes this build from now on: {kept}"
    return "no folder can be written to keep the build in"


def import_all(folder: Path) -> list[str]:
    """Import every module of our packages in a folder of `sys.path`; which ones failed, and why."""
    failed = []
    for package in _INSTALLED:
        for file in sorted((folder / package).rglob("*.py")):
            *above, last = file.relative_to(folder).with_suffix("").parts
            # What stands in a folder without `__init__.py` is data: models that the demo writes.
            if last != "__main__" and (file.parent / "__init__.py").exists():
                name = ".".join(above if last == "__init__" else [*above, last])
                failed += _import_failure(name)
    return failed


def _import_failure(name: str) -> list[str]:
    try:
        importlib.import_module(name)
    except Exception as error:  # a module may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or missing.partition(".")[0] in _INSTALLED:  # and no engine's
            return [f"{name} cannot be imported: {type(error).__name__}: {error}"]
    return []


def _sources(root: Path) -> Iterator[Path]:
    yield from (root / name for name in _RECIPE)
    for package in _PACKAGES:
        for folder, folders, files in os.walk(root / package):
            if "__pycache__" in folders:
                folders.remove("__pycache__")
            yield from (Path(folder, file) for file in files)


def _shelves(root: Path) -> tuple[Path, Path]:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return root / "build" / "compiled", Path(caches, "penstock", "compiled").expanduser()


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel; who looks meanwhile sees nothing of it or all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unpacking-") as temporary:
        unpacked = Path(temporary, folder.name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        unpacked.rename(folder)


def _trim(shelf: Path, kept: Path) -> None:
    """Delete all but this one and those that were kept or found last."""
    others = [
        folder
        for folder in shelf.iterdir()
        if folder != kept and not folder.name.startswith("unpacking-")
    ]
    for folder in sorted(others, key=lambda folder: -folder.stat().st_mtime)[_MOST - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
