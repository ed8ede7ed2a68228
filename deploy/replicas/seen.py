"""`make replicas`: the services of compose.yaml as processes, under a load, while servers die.

    python -m deploy.replicas.seen [--seconds 8] [--stay] [--out build/replicas]

Commands of the servers, the proxy's file, Prometheus' rules and Jaeger's settings are those of the
compose file; only addresses are others. Grafana is nowhere to be had as a program: in its place its
dashboards are drawn, as what Prometheus answers to their expressions. A load of Triton's own client
goes through the proxy: unary calls over gRPC, which are tried again as gRPC's service configuration
says; calls over HTTP, which are not; and streams. Meanwhile one server is killed, comes back, and
the other one is told to exit, and comes back.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import secrets
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import yaml
from tritonclient.utils import InferenceServerException

from deploy.observability.observe import TOOLS, demo
from deploy.observability.pictures import Span, draw, with_data
from deploy.observability.programs import StackError, Started, port, program
from deploy.observability.prometheus_api import PrometheusApi
from deploy.observability.questions import DASHBOARDS
from deploy.observability.stack import Jaeger, jaeger, prometheus

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPOSE = HERE / "compose.yaml"
PROXY = HERE.parent / "proxies" / "haproxy.cfg"
NAMES = ("penstock-1", "penstock-2")
_TRACED_CALLS = 16
_TRACE_SECONDS = 30.0
_KINDS = {"http": 8000, "grpc": 8001, "metrics": 8002}

_AGAIN = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": "inference.GRPCInferenceService"}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.05s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)
"""gRPC's own retries, which any client of gRPC can be configured with."""


# -- the compose file's services as processes ------------------------------------------------------


def command_of(
    service: Mapping[str, Any], repository: Path, ports: Mapping[str, int], traces: str
) -> list[str]:
    """The command of a server in the compose file, with addresses of this machine.

    Args:
        service: The service as YAML has it.
        ports: Where the server shall listen, by `http`, `grpc` and `metrics`.
        traces: The collector's URL; empty to leave traces out.
    """
    words = [_substituted(word) for word in service["command"]]
    words = [word.replace("=/models", f"={repository}") for word in words]
    if traces:
        words = [re.sub(r"http://jaeger:4318/v1/traces", traces, word) for word in words]
    else:
        words = [word for word in words if not word.startswith("--trace-config")]
    listening = [f"--{kind}-port={number}" for kind, number in ports.items()]
    return [*words, *listening, *(f"--{kind}-address=127.0.0.1" for kind in ports)]


def _substituted(word: str) -> str:
    """A word of the compose file with the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word)


def haproxy_on(text: str, ports: Mapping[tuple[str, int], int]) -> str:
    """HAProxy's file with ports of this machine, by host and port in the file.

    The host is empty for the proxy itself. The port of a check is another one on each server here.
    """
    text = re.sub(
        r"(penstock-\d):8001 (.*) port 8000",
        lambda m: f"{m[1]}:8001 {m[2]} port {ports[m[1], 8000]}",
        text,
    )
    text = re.sub(r"(penstock-\d):(\d+)", lambda m: f"127.0.0.1:{ports[m[1], int(m[2])]}", text)
    return re.sub(r"bind :(\d+)", lambda m: f"bind 127.0.0.1:{ports['', int(m[1])]}", text)


class Server:
    """A server of the compose file, which can be started several times on the same ports."""

    def __init__(self, name: str, service: Mapping[str, Any], folder: Path) -> None:
        self.name = name
        self.ports = {kind: port("") for kind in _KINDS}
        self._service = service
        self._folder = folder
        self._stack = ExitStack()
        self._starts = 0
        self._started: Started | None = None

    def start(self, repository: Path, traces: str) -> None:
        """Start it; returns before it is ready."""
        self._starts += 1
        words = command_of(self._service, repository, self.ports, traces)
        tritonserver = str(Path(sys.executable).with_name(words[0]))
        name = f"{self.name}.{self._starts}"
        started = program(name, [tritonserver, *words[1:]], self._folder, self._variables())
        self._started = self._stack.enter_context(started)

    def _variables(self) -> dict[str, str]:
        return {name: str(value) for name, value in self._service["environment"].items()}

    def wait_ready(self) -> None:
        """Return when it is ready."""
        self.process.wait_ready(f"http://127.0.0.1:{self.ports['http']}/v2/health/ready")

    @property
    def process(self) -> Started:
        """The last one that was started."""
        assert self._started is not None
        return self._started

    def kill(self) -> None:
        """As the kernel does that has no more memory."""
        self.process.process.kill()
        self.process.process.wait()

    def exit(self) -> float:
        """Tell it to end, and wait for it; the seconds that it took."""
        begin = time.monotonic()
        self.process.process.terminate()
        self.process.process.wait(60)
        return time.monotonic() - begin

    def close(self) -> None:
        """End it."""
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Running:
    """What runs: the servers, where the proxy listens, Prometheus, and Jaeger if it is here."""

    servers: Mapping[str, Server]
    http: str
    grpc: str
    prometheus: PrometheusApi
    jaeger: Jaeger | None
    repository: Path

    def start(self, name: str) -> float:
        """Start a server again; the seconds until it is ready."""
        begin = time.monotonic()
        self.servers[name].start(self.repository, self.jaeger.traces if self.jaeger else "")
        self.servers[name].wait_ready()
        return time.monotonic() - begin


@contextmanager
def services(folder: Path) -> Iterator[Running]:
    """The services of the compose file, ready. `folder` gets models, logs and data."""
    for name in ("haproxy", "prometheus"):
        if not (TOOLS / name).exists():
            raise StackError(f"there is no {name}: `make tools` says why")
    written = yaml.safe_load(COMPOSE.read_text())["services"]
    repository = demo(folder / "models")
    with ExitStack() as stack:
        traces = None
        if (TOOLS / "jaeger").exists():
            traces = stack.enter_context(jaeger(str(TOOLS / "jaeger"), folder))
        servers = {name: Server(name, written[name], folder) for name in NAMES}
        for server in servers.values():
            stack.callback(server.close)
            server.start(repository, traces.traces if traces else "")
        for server in servers.values():
            server.wait_ready()
        targets = [_instance(server) for server in servers.values()]
        url = stack.enter_context(prometheus(str(TOOLS / "prometheus"), folder, targets, "1s"))
        http, grpc = stack.enter_context(_proxy(servers, folder))
        yield Running(servers, http, grpc, PrometheusApi(url), traces, repository)


@contextmanager
def _proxy(servers: Mapping[str, Server], folder: Path) -> Iterator[tuple[str, str]]:
    """HAProxy with the file of `deploy/proxies`; where it listens for HTTP and for gRPC."""
    ports = {("", 8000): port(""), ("", 8001): port("")}
    for name, server in servers.items():
        ports |= {(name, usual): server.ports[kind] for kind, usual in _KINDS.items()}
    file = folder / "haproxy.cfg"
    file.write_text(haproxy_on(PROXY.read_text(), ports))
    http, grpc = f"127.0.0.1:{ports['', 8000]}", f"127.0.0.1:{ports['', 8001]}"
    with program("proxy", [TOOLS / "haproxy", "-db", "-f", file], folder) as started:
        started.wait_ready(f"http://{http}/v2/health/ready")
        yield http, grpc


# -- the load --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """What came of the calls of a phase. Only the lock's owner changes it."""

    answered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0  # seconds, of unary calls
    errors: dict[str, str] = field(default_factory=dict)


class Load:
    """Clients in threads, until it is closed. What they see is counted by phases."""

    def __init__(self, http: str, grpc: str) -> None:
        self._http, self._grpc = http, grpc
        self._lock = threading.Lock()
        self._counts = Counts()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(kind, call))
            for kind, call in (
                *[("gRPC", self._over_grpc)] * 3,
                ("HTTP", self._over_http),
                *[("stream", self._stream)] * 2,
            )
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def counts(self) -> Counts:
        """What was counted since the last question."""
        with self._lock:
            taken, self._counts = self._counts, Counts()
        return taken

    def _repeat(self, kind: str, client: Callable[[], Iterator[None]]) -> None:
        """Make calls with a client, a new one after each failure, as programs do."""
        while not self._over.is_set():
            try:
                for _ in client():
                    with self._lock:
                        self._counts.answered[kind] += 1
                    if self._over.wait(0.01):
                        return
            except Exception as error:  # whatever the client's libraries raise is a failed call
                with self._lock:
                    self._counts.failed[kind] += 1
                    self._counts.errors.setdefault(kind, str(error)[:200])
                self._over.wait(0.05)

    def _timed(self, call: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        answer = call()
        with self._lock:
            self._counts.slowest = max(self._counts.slowest, time.monotonic() - begin)
        return answer

    def _over_grpc(self) -> Iterator[None]:
        options = [("grpc.enable_retries", 1), ("grpc.service_config", _AGAIN)]
        with grpcclient.InferenceServerClient(self._grpc, channel_args=options) as client:
            while True:
                inputs, right = _numbers(grpcclient)
                answer = self._timed(lambda: client.infer("simple", inputs))  # noqa: B023
                _check(answer, right)
                yield

    def _over_http(self) -> Iterator[None]:
        with httpclient.InferenceServerClient(self._http) as client:
            while True:
                inputs, right = _numbers(httpclient)
                answer = self._timed(lambda: client.infer("simple", inputs))  # noqa: B023
                _check(answer, right)
                yield

    def _stream(self) -> Iterator[None]:
        """Texts of the language model, one after the other on one stream.

        A text is lost if the stream ends while it comes.
        """
        replies: queue.Queue[tuple[Any, Any]] = queue.Queue()
        with grpcclient.InferenceServerClient(self._grpc) as client:
            client.start_stream(lambda result, error: replies.put((result, error)))
            while True:
                try:
                    client.async_stream_infer(
                        "tiny_llm", _prompt(), enable_empty_final_response=True
                    )
                except InferenceServerException:
                    return  # a server that exits ends the stream after its text: begin another one
                while True:
                    result, error = replies.get(timeout=30)
                    if error is not None:
                        raise error
                    parameters = result.get_response().parameters
                    if parameters["triton_final_response"].bool_param:
                        break
                yield


_COUNTER = iter(range(1 << 30))


def _numbers(package: Any) -> tuple[list[Any], int]:
    """Inputs of the model `simple`, each time others, and what comes of their first numbers."""
    number = next(_COUNTER)
    values = np.full((1, 16), number, np.int32)
    inputs = [package.InferInput(name, values.shape, "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(values)
    return inputs, 2 * number


def _check(answer: Any, right: int) -> None:
    if int(answer.as_numpy("OUTPUT0")[0, 0]) != right:
        raise StackError(f"{answer.as_numpy('OUTPUT0')} is not {right}")


def _prompt() -> list[Any]:
    sampling = json.dumps({"max_tokens": 24, "temperature": 0}).encode()
    values = {
        "text_input": np.array([b"The function returns"], np.object_),
        "stream": np.array([True]),
        "sampling_parameters": np.array([sampling], np.object_),
    }
    inputs = []
    for name, array in values.items():
        kind = "BOOL" if array.dtype == np.bool_ else "BYTES"
        one = grpcclient.InferInput(name, array.shape, kind)
        one.set_data_from_numpy(array)
        inputs.append(one)
    return inputs


# -- what is seen ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run: what was done, for how long, and what clients and Prometheus saw."""

    name: str
    seconds: float
    counts: Counts
    served: Mapping[str, int]  # inferences by server, as Prometheus has them
    up: int  # targets that answer
    alert: str  # of ServerDown


def watch(running: Running, load: Load, seconds: float) -> list[Phase]:
    """The run: a kill, a return, an exit, a return; each phase lasts at least so long."""
    first, second = NAMES
    phases: list[Phase] = []

    def phase(name: str, action: Callable[[], object]) -> None:
        begin, before = time.monotonic(), _served(running)
        done = action()
        said = f"{name}, {done:.1f} s" if isinstance(done, float) else name
        time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
        after = _served(running)
        served = {each: after.get(each, 0) - before.get(each, 0) for each in NAMES}
        took = time.monotonic() - begin
        up, alert = running.prometheus.healthy_targets(), _alert(running)
        phases.append(Phase(said, took, load.counts(), served, up, alert))
        print(f"    {row(phases[-1])}", flush=True)

    phase("both serve", lambda: None)
    phase(f"kill -9 of {second}", running.servers[second].kill)
    phase(f"{second} is back", lambda: running.start(second))
    phase(f"SIGTERM to {first}", running.servers[first].exit)
    phase(f"{first} is back", lambda: running.start(first))
    return phases


def _served(running: Running) -> dict[str, int]:
    """Inferences of each server since it started, from its own metrics page."""
    counts = {}
    for name, server in running.servers.items():
        url = f"http://127.0.0.1:{server.ports['metrics']}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                page = answer.read().decode()
        except OSError:
            continue
        found = re.findall(r"(?m)^nv_inference_request_success\{.*\} ([\d.e+]+)$", page)
        counts[name] = sum(int(float(number)) for number in found)
    return counts


def _alert(running: Running) -> str:
    states = [rule["state"] for rule in running.prometheus.rules() if rule["name"] == "ServerDown"]
    return states[0] if states else "unknown"


def row(phase: Phase) -> str:
    """A phase as a row of the table."""
    counts = phase.counts
    calls = [
        f"{counts.answered[kind]} / {counts.failed[kind]}" for kind in ("gRPC", "HTTP", "stream")
    ]
    served = ", ".join(str(max(0, phase.served[name])) for name in NAMES)
    cells = [
        phase.name,
        f"{phase.seconds:.0f} s",
        *calls,
        f"{1000 * counts.slowest:.0f} ms",
        served,
    ]
    return "| " + " | ".join([*cells, f"{phase.up} of 2", phase.alert]) + " |"


HEAD = (
    "| | lasted | gRPC answered / failed | HTTP | streams | slowest call | served by 1, 2"
    " | scraped | ServerDown |\n|---|---|---|---|---|---|---|---|---|"
)


def instances(running: Running) -> list[str]:
    """The servers that have spans in one trace, of requests that came with its id by the proxy."""
    if running.jaeger is None:
        return []
    trace, values = secrets.token_hex(16), [0] * 16
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "data": values}
        for name in ("INPUT0", "INPUT1")
    ]
    for number in range(_TRACED_CALLS):
        call = urllib.request.Request(
            f"http://{running.http}/v2/models/simple/infer",
            json.dumps({"inputs": inputs}).encode(),
            {
                "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01",
                "x-sequence-id": str(number),  # which the proxy spreads, however busy servers are
            },
        )
        urllib.request.urlopen(call, timeout=30).close()
    found: list[str] = []
    until = time.monotonic() + _TRACE_SECONDS
    while len(found) < len(NAMES) and time.monotonic() < until:
        time.sleep(0.5)  # servers send spans in batches
        found = _in_trace(f"{running.jaeger.url}/api/traces/{trace}")
    return found


def _in_trace(url: str) -> list[str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            traces = json.load(answer)["data"]
    except urllib.error.HTTPError:  # Jaeger has nothing of it yet
        return []
    tags = [
        tag
        for trace in traces
        for process in trace["processes"].values()
        for tag in process["tags"]
    ]
    return sorted({str(tag["value"]) for tag in tags if tag["key"] == "service.instance.id"})


def drawn(running: Running, begin: float, out: Path) -> Iterator[str]:
    """Draw each dashboard as it was since then, of both servers and of each; what is on them."""
    end = time.time()
    chosen = {name: _instance(server) for name, server in running.servers.items()}
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text("utf-8"))
        counts = []
        for name, servers in {"": "|".join(chosen.values()), **chosen}.items():
            span = Span(begin, end, servers)
            picture = draw(board, running.prometheus, span)
            (out / f"{'-'.join(filter(None, (path.stem, name)))}.svg").write_text(picture, "utf-8")
            full, asked = with_data(board, running.prometheus, span)
            counts.append(f"{name or 'both'} {full} of {asked}")
        yield f"Dashboard `{path.stem}`, expressions with data: {', '.join(counts)}."


def _instance(server: Server) -> str:
    """A server's `instance` in Prometheus."""
    return f"127.0.0.1:{server.ports['metrics']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="make replicas", allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each phase, at least: 8")
    parser.add_argument("--stay", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "replicas")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-replicas-") as temporary:
        try:
            with services(Path(temporary)) as running, Load(running.http, running.grpc) as load:
                print(f"proxy http://{running.http}, gRPC {running.grpc}", flush=True)
                print(f"Prometheus {running.prometheus.url}", flush=True)
                begin = time.time()
                phases = watch(running, load, chosen.seconds)
                report = _report(running, phases, [*drawn(running, begin, chosen.out)])
                (chosen.out / "report.md").write_text(report)
                print(report)
                while chosen.stay:
                    time.sleep(1)
        except KeyboardInterrupt:
            return 0
        except StackError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 1 if any(phase.counts.failed["gRPC"] for phase in phases) else 0


def _report(running: Running, phases: Sequence[Phase], dashboards: Sequence[str]) -> str:
    lines = [HEAD, *map(row, phases), "", *dashboards]
    if running.jaeger is None:
        lines.append("Jaeger is not here.")
    else:
        lines.append(f"One trace has spans of: {', '.join(instances(running)) or 'no server'}.")
    for phase in phases:
        lines += [f"{phase.name}, {kind}: {text}" for kind, text in phase.counts.errors.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
