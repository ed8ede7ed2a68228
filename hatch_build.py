"""Compiles the modules of the hot path into the wheel when `PENSTOCK_COMPILE=1` asks for it.

Which modules, and why not others, says `pyproject.toml`. Without that variable, and in every
editable installation, this does nothing: the wheel is pure Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from shutil import which
from sysconfig import get_config_var, get_path, get_platform
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# numpy is what the compiled modules' types are made of.
_REQUIREMENTS = ["mypy>=2.4", "numpy", "setuptools"]
# Where packages are missing that only checks need, what comes of them is of type Any.
_OPTIONS = [
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--ignore-missing-imports",
    "--no-warn-redundant-casts",
    "--no-warn-return-any",
    "--no-warn-unused-ignores",
]
_OPTIMISATION = "2"  # 3 was no faster, and takes longer to compile
# All modules make one library, which lies in the package, where model processes find it too.
_LIBRARY = "penstock._compiled"
_ROOTS = {"penstock": "service/penstock", "penstock_backends": "backends/penstock_backends"}
"""Where the sources of the packages are."""


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """Adds extension modules to a wheel, each beside the source that it was made from."""

    def dependencies(self) -> list[str]:
        return _REQUIREMENTS if _asked() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _asked() or version == "editable":
            return
        _need_compiler()
        output = Path(self.root, "build", f"{get_platform()}-{sys.implementation.cache_tag}")
        sources = side_by_side(Path(self.root), output / "sources")
        modules = selected(sources, self.config["compiled"], self.config["interpreted"])
        for file in compile_modules(Path(self.root), sources, modules, output):
            build_data["force_include"][str(file)] = str(file.relative_to(output / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _asked() -> bool:
    return os.environ.get("PENSTOCK_COMPILE", "0") not in ("", "0")


def _need_compiler() -> None:
    command = os.environ.get("CC") or get_config_var("CC") or "cc"
    if which(command.split()[0]) is None:
        sys.exit(f"PENSTOCK_COMPILE=1 needs a C compiler, and there is no {command.split()[0]}")
    headers = Path(get_path("include"))
    if not (headers / "Python.h").exists():
        sys.exit(f"PENSTOCK_COMPILE=1 needs the headers of Python, and {headers} has none")


def side_by_side(root: Path, folder: Path) -> Path:
    """A folder with the packages as they lie in site-packages: links to their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in _ROOTS.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(root / source)
    return folder


def selected(sources: Path, compiled: Sequence[str], interpreted: Mapping[str, str]) -> list[str]:
    """The modules to compile, as paths below `sources`. Each pattern must stand for something."""

    def found(pattern: str) -> set[Path]:
        files = set(sources.glob(pattern))
        if not files:
            raise ValueError(f"'{pattern}' in pyproject.toml is the name of no module")
        return files

    wanted = set().union(*map(found, compiled)).difference(*map(found, interpreted))
    return sorted(str(path.relative_to(sources)) for path in wanted)


def compile_modules(root: Path, sources: Path, modules: Sequence[str], output: Path) -> list[Path]:
    """Translate to C, compile, and say what files came of it, below `output/lib`."""
    # Both come with the requirements, so only where something is compiled.
    from mypyc.build import mypycify
    from setuptools import Distribution

    _say(f"translating {len(modules)} modules to C")
    # From here, tracebacks name files as they lie in site-packages.
    with chdir(sources):
        extensions = mypycify(
            [f"--config-file={root}/pyproject.toml", *_OPTIONS, *modules],
            opt_level=_OPTIMISATION,
            debug_level="0",
            multi_file=True,
            target_dir=str(output / "c"),
            group_name=_LIBRARY,
        )
        for extension in extensions:
            # The library's own header lies in a folder as the library does.
            extension.include_dirs.append(str(output / "c" / "penstock"))
            # What a compiler newer than mypyc warns of shall not stop it.
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
        command = _parallel_build(Distribution({"name": "penstock", "ext_modules": extensions}))
        command.build_lib = str(output / "lib")
        command.build_temp = str(output / "objects")
        command.ensure_finalized()
        command.run()
        return [Path(file) for file in command.get_outputs()]


def _parallel_build(distribution: Any) -> Any:
    """setuptools compiles the files of a library one by one; this does so on all cores."""
    from setuptools.command.build_ext import build_ext

    class ParallelBuild(build_ext):
        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                def compile_one(source: str) -> list[str]:
                    _say(f"compiling {Path(source).name}")
                    files: list[str] = compile_some([source], **options)
                    return files

                with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                    return [file for files in pool.map(compile_one, sources) for file in files]

            self.compiler.compile = compile_all
            super().build_extensions()

    return ParallelBuild(distribution)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
