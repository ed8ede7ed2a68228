"""Packs what a machine without a network lacks to run these tests, into `build/gpu/packages`.

    python tests/gpu/pack.py --python-version 3.12 --platform manylinux_2_28_x86_64

It runs where there is an index of packages, and takes wheels for the other machine's Python: what
the server needs, pytest with what the tests import, and a client. NumPy and PyTorch are those of
the other machine. Symbols for debuggers are taken out where there is `strip`: they are a third.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "gpu" / "packages"
MANIFEST = "packed.json"
"""The file in the folder that says what is in it, and for which Python."""

LIMIT_MIB = 50
"""What a folder may have: with the working tree, it is to fit into 64 MiB."""

OF_TESTS = ("pytest", "pytest-asyncio", "hypothesis", "tritonclient[grpc]")
"""What the tests need beside the server; NumPy is there with PyTorch."""
LEFT_OUT = ("numpy",)
"""What is not packed, as it comes with PyTorch."""


def project() -> Mapping[str, Any]:
    """The table `project` of the package's `pyproject.toml`."""
    table: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def requirements(left_out: Sequence[str]) -> list[str]:
    """What is asked of the index, without those that are left out."""
    wanted = [*project()["dependencies"], *OF_TESTS]
    return [one for one in wanted if re.split(r"[^\w.-]", one)[0] not in left_out]


def target_of(platform: str) -> str:
    """uv's name of the platform that wheels call `platform`; raises `SystemExit`."""
    found = re.fullmatch(r"(manylinux_\d+_\d+)_(\w+)", platform)
    if found is None:
        raise SystemExit(f"--platform is one of wheels, manylinux_2_28_x86_64, not '{platform}'")
    return f"{found[2]}-{found[1]}"


def install(folder: Path, python: str, platform: str, left_out: Sequence[str]) -> None:
    """Unpack the wheels of all requirements, and of theirs, in a folder."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise SystemExit("uv is needed: make .venv/.uv, or pip install uv")
    with tempfile.TemporaryDirectory() as scratch:
        excludes = Path(scratch, "excludes.txt")
        excludes.write_text("\n".join(left_out))
        command = [uv, "pip", "install", "--quiet", f"--python={sys.executable}"]
        command += [f"--target={folder}", "--only-binary=:all:"]
        command += [f"--python-version={python}", f"--python-platform={target_of(platform)}"]
        command += [f"--excludes={excludes}", "--link-mode=copy", *requirements(left_out)]
        done = subprocess.run(command, env=_index_settings(os.environ))
    if done.returncode:
        raise SystemExit("the packages could not be installed; this needs an index of packages")


def _index_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with pip's settings of the index as those of uv, as in the Makefile."""
    same = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_FIND_LINKS": "UV_FIND_LINKS"}
    found = {uv: environment[pip] for pip, uv in same.items() if pip in environment}
    return {"UV_HTTP_TIMEOUT": "300", **found, **environment}


def slim(folder: Path) -> None:
    """Take out programs, sources of extension modules and symbols for debuggers."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for pattern in ("*.pyx", "*.pxd", "*.c", "*.h"):
        for source in folder.rglob(pattern):
            source.unlink()
    libraries = [str(path) for path in folder.rglob("*.so")]
    if libraries and (strip := shutil.which("strip")):
        subprocess.run([strip, "--strip-unneeded", *libraries], check=True)


def announce_server(folder: Path) -> None:
    """Write the entry points of the server, which runs from the working tree, as pip would."""
    text = (ROOT / "service" / "penstock" / "__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)[0]
    info = folder / f"penstock-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: penstock\nVersion: {version}\n")
    groups = project()["entry-points"].items()
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in groups
    )
    (info / "entry_points.txt").write_text("\n".join(sections))


def size_of(path: Path) -> int:
    """Bytes of all files in a folder, or of a file."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def check_size(folder: Path, limit_mib: float) -> str:
    """Say the size; raises `SystemExit`, naming what takes most, if it is above the limit."""
    mib = size_of(folder) / (1 << 20)
    said = f"{folder}: {mib:.1f} MiB of {limit_mib:g}"
    if mib > limit_mib:
        most = sorted(folder.iterdir(), key=size_of, reverse=True)[:5]
        parts = ", ".join(f"{path.name} {size_of(path) / (1 << 20):.1f}" for path in most)
        raise SystemExit(
            f"{said}, too much to travel; most take {parts}. Leave out, by --without,"
            " what the other machine has"
        )
    return said


def pack(folder: Path, python: str, platform: str, left_out: Sequence[str], limit: float) -> str:
    """Pack anew; what was packed before goes. Says the size."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    install(folder, python, platform, left_out)
    slim(folder)
    said = check_size(folder, limit)
    announce_server(folder)
    packages = {one.metadata["Name"]: one.version for one in distributions(path=[str(folder)])}
    manifest = {"python": python, "platform": platform, "packages": packages}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python-version", default="3.12", help="of the other machine")
    parser.add_argument("--platform", default="manylinux_2_28_x86_64", help="as wheels name it")
    parser.add_argument("--folder", type=Path, default=PACKAGES)
    parser.add_argument("--limit-mib", type=float, default=LIMIT_MIB)
    parser.add_argument(
        "--without", action="append", default=[], help="a package that the other machine has"
    )
    given = parser.parse_args()
    left_out = [*LEFT_OUT, *given.without]
    print(pack(given.folder, given.python_version, given.platform, left_out, given.limit_mib))


if __name__ == "__main__":
    main()
