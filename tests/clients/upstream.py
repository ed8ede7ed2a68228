"""Runs the client examples of Triton's own repository, unchanged, and prints what passed.

    git clone https://github.com/triton-inference-server/client
    make .venv/.test
    PYTHONPATH=tests .venv/bin/python -m clients.upstream client

The models are those of `penstock demo --examples`. The image clients need Pillow, and over HTTP
attrdict; what is not installed is named in the table. The examples are not part of this project.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clients.upstream_runs import RUNS, Run
from harness.serving import Served, serving
from penstock.demo import write_examples
from rpc.certificates import write_certificates

_FOLDER = Path("src/python/examples")
_RUN_TIMEOUT = 120.0  # seconds: the slowest one, simple_grpc_custom_repeat.py, sleeps for 10
_DEFAULT_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
_COUNTED = re.compile(r"get_model_repository_index\(\).*!= (\d+)")
# The model that is left away where an example counts seven, which does not ask it.
_EIGHTH = "simple_int8"

PASSED, FAILED = "yes", "NO"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run: `PASSED`, `FAILED` or why it was left out, and what it printed."""

    verdict: str
    printed: str = ""


class LeftOutError(Exception):
    """A run is not possible here; the message says why."""


class Servers:
    """The servers that examples ask, each started when the first one asks it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._served: dict[str, Served] = {}
        self._repositories = folder / "repositories"
        write_examples(self._repositories, report=lambda line: None)

    @property
    def certificate(self) -> str:
        """The file of the authority that vouches for the server with TLS."""
        return str(self._certificates() / "root.pem")

    def get(self, run: Run, text: str) -> Served:
        """The server of a run, whose example has this text; raises `LeftOutError`."""
        counted = _COUNTED.search(text)
        name = f"control-{counted[1]}" if counted else run.server
        if name not in self._served:
            self._served[name] = self._start(name)
        return self._served[name]

    def _start(self, name: str) -> Served:
        own, more = self._repositories / "model_repository", self._repositories / "more_models"
        options = [f"--model-repository={more}", "--allow-client-shm=true"]
        if name.startswith("control-"):
            own = self._with_models(own, int(name.removeprefix("control-")))
            options = ["--model-control-mode=explicit", "--allow-client-shm=true"]
            options += ["--allow-model-upload=true"]
        elif name == "tls":
            options += self._tls()
        elif name == "default ports":
            options += default_ports()
        log = self._folder / f"{name.replace(' ', '-')}.log"
        return self._stack.enter_context(serving(own, log, *options))

    def _with_models(self, own: Path, count: int) -> Path:
        """Upstream's repository with as many models as an example counts: eight, once seven."""
        if count == len(list(own.iterdir())):
            return own
        fewer = self._folder / "fewer"
        shutil.copytree(own, fewer, ignore=shutil.ignore_patterns(_EIGHTH))
        found = len(list(fewer.iterdir()))
        if count != found:
            raise LeftOutError(f"it counts {count} models, there are {found} or one more")
        return fewer

    def _certificates(self) -> Path:
        folder = self._folder / "certificates"
        if not folder.exists():
            folder.mkdir()
            write_certificates(folder)
        return folder

    def _tls(self) -> list[str]:
        folder = self._certificates()
        return [
            "--grpc-use-ssl=true",
            f"--grpc-server-cert={folder / 'server.pem'}",
            f"--grpc-server-key={folder / 'server.key'}",
            "--http-use-ssl=true",
            f"--http-server-cert={folder / 'server.pem'}",
            f"--http-server-key={folder / 'server.key'}",
        ]


def default_ports() -> list[str]:
    """Flags for Triton's default ports, which some examples have written into them.

    Raises `LeftOutError` where one is taken.
    """
    for port in _DEFAULT_PORTS.values():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                raise LeftOutError(f"port {port} is taken") from error
    return [f"--{name}-port={port}" for name, port in _DEFAULT_PORTS.items()]


def examples(folder: Path) -> Path:
    """The folder of examples in a checkout, or `folder` itself."""
    return folder / _FOLDER if (folder / _FOLDER).is_dir() else folder


def pictures(folder: Path) -> Path:
    """A folder of three images, each of one colour; without Pillow it is empty."""
    folder.mkdir(exist_ok=True)
    try:
        from PIL import Image
    except ImportError:
        return folder
    for name, colour in {"green": (10, 240, 20), "red": (240, 5, 9), "blue": (3, 9, 250)}.items():
        Image.new("RGB", (40, 30), colour).save(folder / f"{name}.png")
    return folder


def perform(run: Run, folder: Path, servers: Servers, images: Path) -> Result:
    """Run an example of `folder`, which has to end well and to print what it is to print."""
    path = folder / run.file
    text = path.read_text("utf-8")
    if impossible := run.impossible(text):
        return Result(impossible)
    try:
        server = servers.get(run, text)
    except LeftOutError as reason:
        return Result(str(reason))
    address = (server.http if run.protocol == "http" else server.grpc).replace(
        "127.0.0.1", "localhost"
    )
    places = {"URL": address, "CA": servers.certificate, "IMAGES": str(images)}
    return run_program(path, [word.format(**places) for word in run.arguments], run.prints)


def run_program(path: Path, arguments: Sequence[str], prints: Sequence[str]) -> Result:
    """Run a program of Python's, which has to end well and to print these words."""
    try:
        done = subprocess.run(
            [sys.executable, str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Result(FAILED, f"{error.stdout!r}\nnot done in {_RUN_TIMEOUT:.0f} s")
    if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", done.stdout):
        return Result(f"{missing[1]} is not installed", done.stdout)
    well = done.returncode == 0 and all(words in done.stdout for words in prints)
    return Result(PASSED if well else FAILED, done.stdout)


def _unknown(folder: Path) -> Iterator[str]:
    """Examples that no run names, as those that upstream has added since."""
    known = {run.file for run in RUNS}
    return (path.name for path in sorted(folder.glob("*.py")) if path.name not in known)


def main(arguments: Sequence[str]) -> int:
    """Run all examples of a folder; the exit status."""
    parser = argparse.ArgumentParser("clients.upstream")
    parser.add_argument("folder", type=Path, help="a checkout of Triton's client repository")
    parser.add_argument("names", nargs="*", metavar="WORD", help="run only files with such a name")
    chosen = parser.parse_args(arguments)
    folder = examples(chosen.folder)
    runs = [run for run in RUNS if (folder / run.file).is_file()]
    if chosen.names:
        runs = [run for run in runs if any(word in run.file for word in chosen.names)]
    if not runs:
        parser.error(f"there are no examples of Triton's in {folder}")
    failed = 0
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        servers = Servers(Path(place), stack)
        images = pictures(Path(place) / "images")
        for run in runs:
            result = perform(run, folder, servers, images)
            print(f"{result.verdict:<6} {run}", flush=True)
            if result.verdict == FAILED:
                failed += 1
                print(result.printed, file=sys.stderr)
    for name in _unknown(folder) if not chosen.names else ():
        failed += 1
        print(f"{FAILED:<6} {name}: nobody has said with which arguments it runs")
    print(f"{len(runs)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
