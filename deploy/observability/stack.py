"""The stack without containers: Prometheus, Jaeger and a server, wired to each other."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.observability.programs import Started, port, program

HERE = Path(__file__).parent
_RULES = "recording.yml", "alerts.yml"
METRICS = (
    "--metrics-config=summary_latencies=true",
    "--metrics-config=histogram_latencies=true",
)
"""What the dashboards' percentiles need."""

SERVE = sys.executable, "-m", "penstock", "serve"


@dataclass(frozen=True, slots=True)
class Jaeger:
    """The URL of its page, and the endpoint that takes spans over HTTP."""

    url: str
    traces: str

    def options(self, every: int) -> list[str]:
        """What a server is started with to send here the trace of each N-th request."""
        settings = (
            "mode=opentelemetry",
            "level=TIMESTAMPS",
            f"rate={every}",
            f"opentelemetry,url={self.traces}",
        )
        return [f"--trace-config={setting}" for setting in settings]


@dataclass(frozen=True, slots=True)
class Server:
    """An inference server: its addresses, without a scheme."""

    started: Started
    http: str
    grpc: str
    metrics: str


@contextmanager
def jaeger(binary: str, folder: Path) -> Iterator[Jaeger]:
    """Jaeger v2, ready."""
    ports = {
        "JAEGER_HTTP": port("JAEGER_HTTP", 16686),
        "JAEGER_GRPC": port("JAEGER_GRPC"),
        "JAEGER_HEALTH": port("JAEGER_HEALTH"),
        "OTLP_GRPC": port("OTLP_GRPC", 4317),
        "OTLP_HTTP": port("OTLP_HTTP", 4318),
    }
    command = [binary, "--config", f"file:{HERE / 'jaeger.yaml'}"]
    variables = {name: str(number) for name, number in ports.items()}
    with program("jaeger", command, folder, variables) as started:
        started.wait_ready(f"http://127.0.0.1:{ports['JAEGER_HEALTH']}/status")
        yield Jaeger(
            f"http://127.0.0.1:{ports['JAEGER_HTTP']}",
            f"http://127.0.0.1:{ports['OTLP_HTTP']}/v1/traces",
        )


@contextmanager
def prometheus(
    binary: str, folder: Path, targets: Sequence[str], interval: str = "5s"
) -> Iterator[str]:
    """Prometheus, ready, with our rules; yields its URL. `targets` are metrics ports."""
    configuration = write_configuration(folder / "prometheus", targets, interval)
    address = f"127.0.0.1:{port('PROMETHEUS_PORT', 9090)}"
    command = [
        binary,
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'prometheus' / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]
    with program("prometheus", command, folder) as started:
        started.wait_ready(f"http://{address}/-/ready")
        yield f"http://{address}"


def write_configuration(folder: Path, targets: Sequence[str], interval: str) -> Path:
    """Write the configuration of the compose file, for these targets and another interval."""
    (folder / "targets").mkdir(parents=True, exist_ok=True)
    for name in _RULES:
        shutil.copy(HERE / "prometheus" / name, folder)
    text = (HERE / "prometheus" / "prometheus.yml").read_text()
    text = re.sub(r"(scrape|evaluation)_interval: 15s", rf"\1_interval: {interval}", text)
    (folder / "prometheus.yml").write_text(text)
    # JSON is YAML as well.
    (folder / "targets" / "servers.yml").write_text(json.dumps([{"targets": list(targets)}]))
    return folder / "prometheus.yml"


@contextmanager
def server(
    repository: Path,
    folder: Path,
    *arguments: str,
    command: Sequence[str] = SERVE,
) -> Iterator[Server]:
    """A server, ready, with the metrics that the dashboards need."""
    ports = {
        "http": port("HTTP_PORT", 8000),
        "grpc": port("GRPC_PORT", 8001),
        "metrics": port("METRICS_PORT", 8002),
    }
    options = [f"--{name}-port={number}" for name, number in ports.items()]
    options += [f"--{name}-address=127.0.0.1" for name in ports]
    addresses = {name: f"127.0.0.1:{number}" for name, number in ports.items()}
    whole = [*command, f"--model-repository={repository}", *options, *METRICS, *arguments]
    with program("server", whole, folder) as started:
        started.wait_ready(f"http://{addresses['http']}/v2/health/ready")
        yield Server(started, **addresses)
