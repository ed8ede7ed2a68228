"""Generate `service/penstock/protocol/` from the `.proto` files beside this script.

    python proto/generate.py            write the modules
    python proto/generate.py --check    only tell whether they are up to date (exit status 1 if not)

The code generator is pinned: what it writes imports under protobuf 6.31 and everything newer below
8, while later generators demand the protobuf of their own day. It lives in an environment of its
own under `.cache/`, made on first use, so the project's environment never holds it.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

VERSION = "1.73.1"

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
TARGET = ROOT / "service" / "penstock" / "protocol"
TOOLS = ROOT / ".cache" / f"grpcio-tools-{VERSION}"

_GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")

# What protoc writes -> what a package with a descriptor pool of its own needs.
_REWRITES = (
    (r"^import (\w+_pb2) as", r"from . import \1 as"),
    (r"^from google\.protobuf import descriptor_pool as \w+$", "from .pool import POOL"),
    (r"\b_descriptor_pool\.Default\(\)", "POOL"),
    (r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR), '\w+_pb2',", r"\1, __name__,"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the protocol package.")
    parser.add_argument("--check", action="store_true", help="compare only; fail on a difference")
    check = parser.parse_args().check
    fresh = generate()
    if check:
        return report(fresh)
    write(fresh)
    return 0


def generate() -> dict[str, str]:
    """File name -> text of every generated module."""
    with tempfile.TemporaryDirectory() as folder:
        _protoc(Path(folder))
        texts = {path.name: rewrite(path.read_text()) for path in _generated(Path(folder))}
    return {name: text for name, text in texts.items() if not _is_empty(name, text)}


def _is_empty(name: str, text: str) -> bool:
    """Whether it is the stub of a file without services."""
    return name.endswith("_pb2_grpc.py") and "\nclass " not in text


def rewrite(text: str) -> str:
    for pattern, replacement in _REWRITES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def write(fresh: dict[str, str]) -> None:
    for path in _generated(TARGET):
        if path.name not in fresh:
            path.unlink()
    for name, text in fresh.items():
        (TARGET / name).write_text(text)
    print(f"{len(fresh)} modules in {TARGET.relative_to(ROOT)}")


def report(fresh: dict[str, str]) -> int:
    """Print how the tree differs from `fresh`; the exit status."""
    present = {path.name: path.read_text() for path in _generated(TARGET)}
    if present == fresh:
        return 0
    for name in sorted(fresh.keys() | present.keys()):
        old, new = present.get(name, "").splitlines(), fresh.get(name, "").splitlines()
        for line in difflib.unified_diff(old, new, name, f"{name} (generated)", lineterm="", n=1):
            print(line[:200])
    print("The generated modules are stale: run `python proto/generate.py`.")
    return 1


def _generated(folder: Path) -> Iterator[Path]:
    for pattern in _GENERATED:
        yield from sorted(folder.glob(pattern))


def _protoc(output: Path) -> None:
    names = sorted(path.name for path in SOURCES.glob("*.proto"))
    outputs = [f"--{kind}={output}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    command = [_python(), "-m", "grpc_tools.protoc", f"-I{SOURCES}", *outputs, *names]
    subprocess.run(command, check=True)


def _python() -> str:
    """The interpreter of the generator's environment, which is made where it is missing."""
    python = TOOLS / "bin" / "python"
    complete = TOOLS / "complete"
    if not complete.exists():
        print(f"installing grpcio-tools {VERSION} in {TOOLS.relative_to(ROOT)}", file=sys.stderr)
        venv.create(TOOLS, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"grpcio-tools=={VERSION}"], check=True)
        complete.touch()
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
