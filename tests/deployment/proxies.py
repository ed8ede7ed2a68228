"""The proxies of `deploy/proxies`, run in front of servers on ports of this machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.observability.programs import answers, port
from deploy.replicas.seen import haproxy_on
from harness.serving import Served, wait_until
from programs.places import find

PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
NAMES = ("nginx", "haproxy", "envoy")
"""Those that tests can run; Traefik cannot be had here."""


@dataclass(frozen=True, slots=True)
class Balanced:
    """Where a proxy listens."""

    http: str
    grpc: str


def missing(name: str) -> str:
    """Why a proxy cannot run; empty if it can."""
    return "" if find(name) else f"there is no {name}: `make tools` says why"


@contextmanager
def balancing(name: str, servers: Sequence[Served], folder: Path) -> Iterator[Balanced]:
    """A proxy in front of two servers, as its file has it but for addresses."""
    http, grpc = port("", 0), port("", 0)
    configuration, command = _PROXIES[name]
    text = (PROXIES / _FILES[name]).read_text()
    file = folder / _FILES[name]
    file.write_text(configuration(text, _ports(servers, http, grpc), folder))
    with (folder / f"{name}.log").open("wb") as log:
        # Without code between fork and exec, in which gRPC's threads would be missed.
        process = subprocess.Popen([find(name), *command(file)], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or answers(f"http://127.0.0.1:{http}/v2"))
        assert process.poll() is None, Path(log.name).read_text()
        yield Balanced(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")
    finally:
        process.terminate()
        process.wait(20)


_Ports = Mapping[tuple[str, int], int]
"""What stands for a host and a port of the files; the host is empty for the proxy itself."""


def _ports(servers: Sequence[Served], http: int, grpc: int) -> _Ports:
    ports = {("", 8000): http, ("", 8001): grpc}
    for number, server in enumerate(servers, 1):
        ports[f"penstock-{number}", 8000] = server.ports["http"]
        ports[f"penstock-{number}", 8001] = server.ports["grpc"]
    return ports


def _nginx(text: str, ports: _Ports, folder: Path) -> str:
    text = re.sub(r"(penstock-\d):(\d+)", lambda m: f"127.0.0.1:{ports[m[1], int(m[2])]}", text)
    text = re.sub(r"listen (\d+)", lambda m: f"listen 127.0.0.1:{ports['', int(m[1])]}", text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    return text.replace("http {", f"http {{ access_log off; {paths}", 1)


def _haproxy(text: str, ports: _Ports, _: Path) -> str:
    return haproxy_on(text, ports)


def _envoy(text: str, ports: _Ports, _: Path) -> str:
    def address(found: re.Match[str]) -> str:
        host = "" if found[1] == "0.0.0.0" else found[1]
        return f"address: 127.0.0.1, port_value: {ports[host, int(found[2])]}"

    return re.sub(r"address: ([\w.-]+), port_value: (\d+)", address, text)


_FILES = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg", "envoy": "envoy.yaml"}

_Configuration = Callable[[str, _Ports, Path], str]
_Command = Callable[[Path], list[str]]

_PROXIES: Mapping[str, tuple[_Configuration, _Command]] = {
    "nginx": (
        _nginx,
        lambda file: [
            *("-c", str(file), "-p", str(file.parent), "-e", "stderr"),
            *("-g", f"daemon off; pid {file.parent / 'nginx.pid'}; user root;"),
        ],
    ),
    "haproxy": (_haproxy, lambda file: ["-db", "-f", str(file)]),
    "envoy": (
        _envoy,
        lambda file: [
            *("-c", str(file), "--concurrency", "1", "--use-dynamic-base-id"),
            *("--log-level", "warning"),
        ],
    ),
}
