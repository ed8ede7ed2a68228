"""Images: built by docker or podman on a Python, started, and measured."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.image import contents

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OFFICIAL = "docker.io/library/python:3.11-slim"
STAND_IN = "localhost/penstock-debian-python:bookworm"
_PYTHON_OF_DEBIAN = ("python3", "python-is-python3", "python3-pip", "ca-certificates")
_WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_BUILD_SECONDS = 3600.0
_PROCESSES = 16384  # with their threads, of the image's user
_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


class ImageError(Exception):
    """An image cannot be built or does not do what it should; the message says what was seen."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An image to build.

    Attributes:
        engine: What is given as ENGINE.
        goal: MB above its Python that it may have; 0 for no goal.
        lacks: A model of the demo whose engine it does not have.
        says: What the server says of that.
        shared_memory: What `/dev/shm` has, if not the 64 MB that containers have.
    """

    name: str
    engine: str
    goal: int
    lacks: str
    says: tuple[str, ...]
    shared_memory: str = ""

    @property
    def run(self) -> tuple[str, ...]:
        """Options of `run` that it needs."""
        return (f"--shm-size={self.shared_memory}",) if self.shared_memory else ()


VARIANTS = (
    Variant(
        "base",
        "",
        120,
        "simple",
        ("pip install 'penstock[onnx]'", "ENGINE=none", "--build-arg ENGINE=onnx"),
    ),
    Variant(
        "cpu",
        "onnx,openvino,openai",
        450,
        "tiny_vllm",
        ("pip install 'penstock[vllm]'", "--build-arg ENGINE=vllm"),
    ),
    Variant(
        "vllm-cpu",
        contents.ON_CPU,
        0,
        "simple",
        ("pip install 'penstock[onnx]'", "--build-arg ENGINE="),
        shared_memory="1g",  # vLLM wants 160 MiB
    ),
)


# -- docker and podman -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """What builds and runs: docker, or podman, which takes the same words.

    Attributes:
        command: The program and options of its own.
        build: More options of `build`.
        run: More options of `run`.
    """

    command: tuple[str, ...]
    build: tuple[str, ...] = ()
    run: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return Path(self.command[0]).name

    def tell(self, *arguments: str, standard_input: bytes | None = None) -> str:
        """What it prints; raises `ImageError` with its last lines where it fails."""
        done = subprocess.run(
            [*self.command, *arguments], input=standard_input, capture_output=True, check=False
        )
        if done.returncode != 0:
            last = "\n".join(done.stderr.decode(errors="replace").strip().splitlines()[-8:])
            raise ImageError(f"{self.name} {arguments[0]} ended with {done.returncode}: {last}")
        return done.stdout.decode()

    def does(self, *arguments: str) -> bool:
        """Whether it ends without an error."""
        command = [*self.command, *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def find_tool() -> Tool:
    """The one that works here; raises `ImageError` where there is none."""
    if shutil.which("docker") and Tool(("docker",)).does("info", "--format={{.ServerVersion}}"):
        return Tool(("docker",))
    if shutil.which("podman") is None:
        raise ImageError(
            "there is neither a docker daemon nor podman here: apt-get install podman netavark runc"
            " mmdebstrap"
        )
    build = ["--format=docker"]  # podman's own format has no HEALTHCHECK
    if certificates := os.environ.get("SSL_CERT_FILE", ""):  # of a proxy that all comes through
        build.append(f"--volume={certificates}:/etc/ssl/certs/ca-certificates.crt:ro")
    if Path("/run/systemd/system").exists():
        return Tool(("podman",), tuple(build))
    return _podman_alone(build)


def _podman_alone(build: Sequence[str]) -> Tool:
    """Podman without systemd: nobody makes control groups or keeps a journal for it.

    runc knows both hierarchies of control groups at a time, which crun does not. Limits are those
    of this process, since in some sandboxes not even root may raise them.
    """
    own = ["--cgroup-manager=cgroupfs", "--events-backend=none"]
    own += ["--runtime=runc"] if shutil.which("runc") else []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = (f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={_PROCESSES}:{_PROCESSES}")
    return Tool(("podman", *own), (*build, "--isolation=chroot"), limits)


# -- building --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Base:
    """The image with Python that others are built on, and what a compiler needs beside it."""

    image: str
    headers: str = ""
    is_stand_in: bool = False


def base(tool: Tool, wanted: str) -> Base:
    """The image that is named; else the official one, or the stand-in where it is out of reach."""
    debian = Base(STAND_IN, "python3-dev", is_stand_in=True)
    if wanted not in ("", "debian"):
        return Base(wanted)
    if wanted == "" and (tool.does("image", "inspect", OFFICIAL) or tool.does("pull", OFFICIAL)):
        return Base(OFFICIAL)
    if not tool.does("image", "inspect", STAND_IN):
        _make_debian(tool)
    return debian


def _make_debian(tool: Tool) -> None:
    if shutil.which("mmdebstrap") is None:
        raise ImageError(f"{OFFICIAL} is out of reach, and there is no mmdebstrap to do without")
    say(f"making {STAND_IN} with mmdebstrap")
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _WITHOUT]
    packages = ",".join(_PYTHON_OF_DEBIAN)
    with tempfile.TemporaryDirectory() as folder:
        archive = f"{folder}/base.tar"
        command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", *options]
        done = subprocess.run(
            [*command, "bookworm", archive], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ImageError(f"mmdebstrap: {done.stderr[-600:]}")
        tool.tell("import", archive, STAND_IN)


def build(tool: Tool, variant: Variant, on: Base, log: Path, compiled: bool = True) -> float:
    """Build an image; how many seconds it took. The log has what was printed."""
    arguments = {"BASE": on.image, "HEADERS": on.headers, "ENGINE": variant.engine}
    arguments |= {"COMPILE": "1" if compiled else "0"}
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command = [*tool.command, "build", *tool.build, *options, "--tag", tag(variant), str(ROOT)]
    begin = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, timeout=_BUILD_SECONDS, check=False
        )
    if done.returncode != 0:
        raise ImageError(f"the build failed:\n{_last(log, 15)}")
    return time.monotonic() - begin


def tag(variant: Variant) -> str:
    """The image's name."""
    return f"localhost/penstock:{variant.name}"


# -- what is in it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its bytes unpacked, and the line of the Dockerfile that it comes from."""

    size: int
    line: str


def layers(history: str) -> list[Layer]:
    """The layers in `history`'s lines of a size and a command, the lowest first.

    Docker tells bytes, podman also where it is asked for them `1.2 MB`.
    """
    rows = (line.partition("\t") for line in history.splitlines() if line)
    read = [Layer(_bytes(size), " ".join(command.split())) for size, _, command in rows]
    return read[::-1]


def _bytes(text: str) -> int:
    told = re.fullmatch(r"([\d.e+]+) ?([kMG]?)B?", text.strip())
    if told is None:
        raise ImageError(f"'{text}' is no size of a layer")
    return round(float(told[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[told[2]])


def sbom(name: str, packages: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, Any]:
    """A bill of materials in CycloneDX 1.6: what Python and Debian have installed."""
    components = [_component("pypi", one) for one in packages["pypi"]]
    components += [_component("deb/debian", one) for one in packages["deb"]]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "bom-ref": name}},
        "components": components,
    }


def _component(kind: str, package: Mapping[str, str]) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    plain = name.lower().replace("_", "-") if kind == "pypi" else name
    link = f"pkg:{kind}/{plain}@{version.replace('+', '%2B').replace(':', '%3A')}"
    if architecture := package.get("architecture"):
        link += f"?arch={architecture}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": link,
        "name": name,
        "version": version,
        "purl": link,
    }
    if expression := package.get("license"):
        component["licenses"] = [{"expression": expression}]
    return component


def describe(tool: Tool, image: str, out: Path, name: str) -> None:
    """Write the layers and the bill of materials beside each other."""
    form = "{{.Size}}\t{{.CreatedBy}}"
    history = tool.tell("history", "--no-trunc", "--human=false", f"--format={form}", image)
    lines = [f"{layer.size / 1e6:8.1f} MB  {layer.line[:150]}" for layer in layers(history)]
    (out / f"{name}.layers.txt").write_text("\n".join(lines) + "\n")
    program = (HERE / "contents.py").read_bytes()
    run = ("run", "--rm", "--interactive", "--network=none", *tool.run, image)
    found = tool.tell(*run, "python", "-", "list", standard_input=program)
    bill = json.dumps(sbom(image, json.loads(found)), indent=1)
    (out / f"{name}.cdx.json").write_text(bill + "\n")


def size(tool: Tool, image: str) -> int:
    """Bytes of an image, unpacked."""
    return int(tool.tell("image", "inspect", "--format={{.Size}}", image))


# -- running it ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs: where its ports are for clients outside it, and its log."""

    tool: Tool
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    addresses: Mapping[str, str] = field(default_factory=dict)

    def execute(self, *command: str) -> str:
        """What a command prints in the container."""
        return self.tool.tell("exec", self.name, *command)

    def terminate(self) -> None:
        """Send SIGTERM to the server, as every orchestrator does."""
        self.tool.tell("kill", "--signal=TERM", self.name)


@contextmanager
def running(tool: Tool, image: str, models: Path, log: Path, *command: str) -> Iterator[Running]:
    """A container, as its own user, with a root file system that nobody can write to.

    Only `/tmp` is writable; it has no capabilities and gets none.
    """
    name = f"penstock-{uuid.uuid4().hex[:12]}"
    options = [
        "--rm",
        f"--name={name}",
        "--read-only",
        "--tmpfs=/tmp",
    ]
    options += ["--cap-drop=ALL", "--security-opt=no-new-privileges", *tool.run]
    options += [f"--volume={models}:/models:ro"]
    options += [f"--publish=127.0.0.1::{port}" for port in _PORTS.values()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*tool.command, "run", *options, image, *command], stdout=output, stderr=output
        )
    try:
        yield Running(tool, name, process, log, _addresses(tool, name, process, log))
    finally:
        if process.poll() is None:
            tool.does("kill", "--signal=KILL", name)
        process.wait(60)


def _addresses(
    tool: Tool, name: str, process: subprocess.Popen[bytes], log: Path
) -> dict[str, str]:
    """Where the ports of a container are, once it has them."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        try:
            told = {kind: tool.tell("port", name, str(port)) for kind, port in _PORTS.items()}
        except ImageError:
            if process.poll() is not None:
                return {}  # it has ended by itself, as some are meant to
            time.sleep(0.1)
            continue
        return {kind: text.split()[0] for kind, text in told.items()}
    raise ImageError(f"the container has no ports:\n{_last(log)}")


def _last(log: Path, count: int = 12) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-count:])


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


# -- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """An image in the table: MB unpacked, MB above its Python, and what each trial saw."""

    variant: Variant
    whole: float
    above: float
    seconds: float
    seen: Mapping[str, str]
    failures: Sequence[str] = ()


def measured(tool: Tool, variant: Variant, on: Base, out: Path, seconds: float, tried: Any) -> Row:
    """Measure and try an image that took so long to build."""
    whole = size(tool, tag(variant))
    above = whole - size(tool, on.image)
    say(f"{tag(variant)}: {whole / 1e6:.0f} MB, {above / 1e6:.0f} above its Python")
    describe(tool, tag(variant), out, variant.name)
    seen, failures = tried(tool, variant, out)
    if variant.goal and above > variant.goal * 1e6:
        failures = [
            *failures,
            f"{above / 1e6:.0f} MB above its Python, and {variant.goal} is the goal",
        ]
    return Row(variant, whole / 1e6, above / 1e6, seconds, seen, failures)


def table(rows: Sequence[Row], on: Base, tool: str) -> str:
    """What was seen, in Markdown."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    python = f"{on.image}, a stand-in with Debian's own Python" if on.is_stand_in else on.image
    lines = [f"Commit {commit or 'unknown'}, {tool}, on {python}.", ""]
    lines.append("| | " + " | ".join(row.variant.name for row in rows) + " |")
    lines.append("|---|" + "---|" * len(rows))
    lines.append("| ENGINE | " + " | ".join(row.variant.engine or "none" for row in rows) + " |")
    lines.append("| MB, unpacked | " + " | ".join(f"{row.whole:.0f}" for row in rows) + " |")
    lines.append(
        "| MB above its Python (goal) | "
        + " | ".join(f"{row.above:.0f} ({row.variant.goal or '-'})" for row in rows)
        + " |"
    )
    lines.append("| built in | " + " | ".join(f"{row.seconds:.0f} s" for row in rows) + " |")
    lines += [
        f"| {name} | " + " | ".join(row.seen.get(name, "-") for row in rows) + " |"
        for name in dict.fromkeys(name for row in rows for name in row.seen)
    ]
    for row in rows:
        lines += [f"\n**{row.variant.name} FAILED**: {failure}" for failure in row.failures]
    return "\n".join(lines) + "\n"
