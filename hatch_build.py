"""Compiles the modules of the hot path into a wheel when `PENSTOCK_COMPILE=1` asks for it.

Which modules, and why not others, says the `pyproject.toml` of the server, and of the client.
Without that variable, and in every editable installation, this does nothing: the wheel is pure
Python.

`PENSTOCK_TARGET=aarch64-linux-gnu.2.17` compiles for that processor and that C library, with the
compiler of `ziglang` and flags of our own in place of this machine's: what comes of it are the same
bytes wherever the same versions make it. `PENSTOCK_HEADERS` is the folder of that Python's headers,
where it is not the one that runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from shutil import copyfile, which
from sysconfig import get_config_var, get_path, get_platform
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

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
    "--no-warn-unreachable",  # what is for another Python than this one
    "--no-warn-unused-ignores",
]
_OPTIMISATION = "2"  # 3 was no faster, and takes longer to compile
_ZIG = "ziglang==0.17.0"
_FLAGS = ["-fPIC", "-fno-strict-overflow", "-DNDEBUG", "-g0", "-w"]
"""What Python itself is built with, less what differs from one build of it to another."""
_HEADERS = ("__native_", "__native_internal_")
"""Beginnings of the headers that each source of a library includes."""
_CACHE_BYTES = 512 << 20
_REPOSITORY = Path(__file__).resolve().parent
_BUILD = _REPOSITORY / "build"
_ROOTS = {
    "penstock": "service/penstock",
    "penstock_backends": "backends/penstock_backends",
    "penstock_client": "client/penstock_client",
}
"""Where the sources of the packages are."""


class Target(NamedTuple):
    """What is compiled for, in place of this machine: `PROCESSOR-linux-gnu.GLIBC`, zig's word."""

    name: str
    headers: Path

    @property
    def platform(self) -> str:
        """As the tags of wheels and the folders of builds have it."""
        return f"linux_{self._processor}"

    @property
    def suffix(self) -> str:
        """The end of the names of extension modules."""
        return f".{sys.implementation.cache_tag}-{self._processor}-linux-gnu.so"

    @property
    def tag(self) -> str:
        """The tag of a wheel for this Python."""
        version = f"cp{sys.version_info.major}{sys.version_info.minor}"
        return f"{version}-{version}-{self.platform}"

    def command(self) -> list[str]:
        """The compiler, which comes with the requirements, as a linker does."""
        from ziglang import __file__ as package

        return [str(Path(package).with_name("zig")), "cc", "-target", self.name]

    @property
    def _processor(self) -> str:
        return self.name.partition("-")[0]


def asked_target() -> Target | None:
    """The target that the environment names; `None` for this machine."""
    name = os.environ.get("PENSTOCK_TARGET", "")
    headers = os.environ.get("PENSTOCK_HEADERS") or get_path("include")
    return Target(name, Path(headers)) if name else None


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """Adds extension modules to a wheel, each beside the source that it was made from."""

    def dependencies(self) -> list[str]:
        if not _asked():
            return []
        return [*_REQUIREMENTS, _ZIG] if asked_target() else _REQUIREMENTS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _asked() or version == "editable":
            return
        target = asked_target()
        _need_compiler(target)
        library = self.config["library"]
        platform = target.platform if target else get_platform()
        output = _BUILD / f"{platform}-{sys.implementation.cache_tag}" / library
        sources = side_by_side(output / "sources")
        modules = selected(sources, self.config["compiled"], self.config["interpreted"])
        for file in compile_modules(sources, modules, output, library, target):
            build_data["force_include"][str(file)] = str(file.relative_to(output / "lib"))
        build_data["pure_python"] = False
        if target is None:
            build_data["infer_tag"] = True
        else:
            build_data["tag"] = target.tag


def _asked() -> bool:
    return os.environ.get("PENSTOCK_COMPILE", "0") not in ("", "0")


def _need_compiler(target: Target | None) -> None:
    command = os.environ.get("CC") or get_config_var("CC") or "cc"
    if target is None and which(command.split()[0]) is None:
        sys.exit(f"PENSTOCK_COMPILE=1 needs a C compiler, and there is no {command.split()[0]}")
    headers = target.headers if target else Path(get_path("include"))
    if not (headers / "Python.h").exists():
        sys.exit(f"PENSTOCK_COMPILE=1 needs the headers of Python, and {headers} has none")


def side_by_side(folder: Path) -> Path:
    """A folder with the packages as they lie in site-packages: links to their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in _ROOTS.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(_REPOSITORY / source)
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


def compile_modules(
    sources: Path,
    modules: Sequence[str],
    output: Path,
    library: str,
    target: Target | None = None,
) -> list[Path]:
    """Translate to C, compile, and say what files came of it, below `output/lib`.

    All modules make one library, which lies in their package, where model processes find it too.
    """
    # Both come with the requirements, so only where something is compiled.
    from mypyc.build import mypycify
    from setuptools import Distribution

    _say(f"translating {len(modules)} modules to C")
    # From here, tracebacks name files as they lie in site-packages.
    with chdir(sources):
        extensions = mypycify(
            [f"--config-file={_REPOSITORY}/pyproject.toml", *_OPTIONS, *modules],
            opt_level=_OPTIMISATION,
            debug_level="0",
            multi_file=True,
            target_dir=str(output / "c"),
            group_name=library,
        )
        # What a compiler newer than mypyc warns of shall not stop it.
        for extension in extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
            if target is not None:  # before those of the Python that runs
                extension.include_dirs.append(str(target.headers))
        package, name = library.split(".")
        shared = next(one for one in extensions if one.name.endswith(f"{library}__mypyc"))
        # The library's own headers lie in a folder as the library does.
        shared.include_dirs.append(str(output / "c" / package))
        header = output / "c" / "every_source.h"
        header.write_text("".join(f'#include "{start}{name}.h"\n' for start in _HEADERS))
        # By its name, since what a cache keeps is not for this folder alone.
        shared.extra_compile_args += ["-include", header.name]
        distribution = Distribution({"name": package, "ext_modules": extensions})
        command = _parallel_build(distribution, header, target)
        command.build_lib = str(output / "lib")
        command.build_temp = str(output / "objects")
        command.ensure_finalized()
        command.run()
        return [Path(file) for file in command.get_outputs()]


class ObjectCache:
    """Objects by the content of what they are compiled from, in a folder that all clones share.

    Args:
        folder: Where they lie; a folder that cannot be written keeps nothing.
        common: What all sources have in common: command, compiler, headers.
    """

    def __init__(self, folder: Path, common: bytes = b"") -> None:
        self._folder = folder
        self._common = common

    def fetch(self, source: str, file: Path) -> bool:
        """Put the object of a source into a file; whether there was one."""
        kept = self._kept(source)
        if not kept.exists():
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        copyfile(kept, file)
        with suppress(OSError):  # somebody else's folder, which is read all the same
            os.utime(kept)
        return True

    def keep(self, source: str, file: Path) -> None:
        """Keep an object. Builds at the same time write the same."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._folder, delete=False) as copy:
                copy.write(file.read_bytes())
            os.replace(copy.name, self._kept(source))

    def trim(self, size: int = _CACHE_BYTES) -> None:
        """Delete what was not used for the longest time, down to a size in bytes."""
        with suppress(OSError):
            for file in sorted(self._folder.iterdir(), key=lambda file: -file.stat().st_mtime):
                size -= file.stat().st_size
                if size < 0:
                    file.unlink()

    def _kept(self, source: str) -> Path:
        return self._folder / sha256(self._common + Path(source).read_bytes()).hexdigest()


def _cache_folder() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches, "penstock", "objects").expanduser()


def _common(compiler: list[str], options: Mapping[str, Any]) -> bytes:
    """Command, compiler and headers: all that objects depend on beside their own source."""
    said = subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout
    # zig's compiler says where it is installed, which is another folder in each build.
    version = b"".join(one for one in said.splitlines(True) if not one.startswith(b"InstalledDir"))
    flags = [options[name] for name in ("macros", "debug", "extra_postargs")]
    command = [Path(compiler[0]).name, *compiler[1:]]
    told = repr((command, flags, sys.version, version, metadata.version("mypy")))
    headers = (file for folder in options["include_dirs"] for file in Path(folder).glob("*.h"))
    return told.encode() + b"".join(file.read_bytes() for file in sorted(headers))


def _precompile(compiler: list[str], header: Path, options: Mapping[str, Any]) -> Path:
    """Parse once the headers that every source of the library includes: megabytes."""
    compiled = Path(f"{header}.gch")
    compiled.unlink(missing_ok=True)  # one of older headers would stand for this one, even here
    includes = [f"-I{folder}" for folder in [*options["include_dirs"], get_path("include")]]
    command = [*compiler, *includes, *options["extra_postargs"], "-x", "c-header", str(header)]
    subprocess.run([*command, "-o", str(compiled)], check=True)
    return compiled


def _parallel_build(distribution: Any, header: Path, target: Target | None) -> Any:
    """setuptools compiles file by file and library by library; this does so on all cores, and takes
    from a cache what was compiled before. The header is what `-include` names, for some.
    """
    from setuptools.command.build_ext import build_ext

    cores = len(os.sched_getaffinity(0))

    class ParallelBuild(build_ext):
        def get_ext_filename(self, fullname: str) -> str:
            file = str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]
            return file.replace(get_config_var("EXT_SUFFIX"), target.suffix) if target else file

        def build_extensions(self) -> None:
            if target is not None:
                command = target.command()
                self.compiler.set_executables(
                    compiler_so=[*command, *_FLAGS], linker_so=[*command, "-shared"]
                )
            compile_some = self.compiler.compile
            compiler = self.compiler.compiler_so

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                cache = ObjectCache(_cache_folder(), _common(compiler, options))
                names = self.compiler.object_filenames(sources, output_dir=options["output_dir"])
                files = dict(zip(sources, map(Path, names), strict=True))
                missing = [source for source in sources if not cache.fetch(source, files[source])]

                flags = list(options["extra_postargs"])
                if missing and header.name in flags:
                    made = _precompile(compiler, header, options)
                    # gcc finds it by itself, beside the header.
                    flags += [] if target is None else ["-include-pch", str(made)]

                def compile_one(source: str) -> None:
                    _say(f"compiling {Path(source).name}")
                    compile_some([source], **{**options, "extra_postargs": flags})
                    cache.keep(source, files[source])

                with ThreadPoolExecutor(cores) as pool:
                    list(pool.map(compile_one, missing))
                return [str(file) for file in files.values()]

            self.compiler.compile = compile_all
            super().build_extensions()
            ObjectCache(_cache_folder()).trim()

    command = ParallelBuild(distribution)
    command.parallel = cores
    return command


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
