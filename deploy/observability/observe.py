"""`make observe`: the demo with Prometheus, Jaeger and a load, without containers.

    python -m deploy.observability.observe [--seconds 60] [options of penstock serve]

Ctrl-C ends all of it. Ports are the usual ones where they are free, others where not, and those
that HTTP_PORT, GRPC_PORT, METRICS_PORT, PROMETHEUS_PORT, JAEGER_HTTP, OTLP_GRPC and OTLP_HTTP name.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import FrameType

from deploy.observability.programs import StackError, Started, program
from deploy.observability.stack import SERVE, Server, jaeger, prometheus, server
from penstock.demo.repository import write_demo

TOOLS = Path(__file__).parents[2] / ".tools"
_CACHE = "--cache-config=local,size=67108864"
_TRACED = 10  # requests for a trace, so that Jaeger's memory lasts for minutes
_EDITS = {
    "simple": "response_cache { enable: true }",
}
"""Additions to configurations of the demo, so that panels have more to show."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A running stack; the URLs `prometheus` and `jaeger` are empty where these are missing."""

    server: Server
    load: Started
    prometheus: str
    jaeger: str

    def ended(self) -> Started | None:
        """The program that has ended by itself, if one has."""
        both = self.server.started, self.load
        return next((one for one in both if one.process.poll() is not None), None)


@contextmanager
def observed(
    folder: Path,
    *options: str,
    repository: Path | None = None,
    command: Sequence[str] = SERVE,
    interval: str = "5s",
    further: Sequence[str] = (),
) -> Iterator[Observed]:
    """The stack under load. `folder` gets logs, data, and the demo if no repository is named.

    `further` are metrics ports of other servers, for Prometheus to scrape as well.
    """
    with ExitStack() as stack:
        models = repository or demo(folder / "models")
        traces = (
            stack.enter_context(jaeger(str(TOOLS / "jaeger"), folder)) if _has("jaeger") else None
        )
        arguments = [_CACHE, *(traces.options(_TRACED) if traces else ()), *options]
        served = stack.enter_context(server(models, folder, *arguments, command=command))
        url = ""
        if _has("prometheus"):
            binary = str(TOOLS / "prometheus")
            targets = [served.metrics, *further]
            url = stack.enter_context(prometheus(binary, folder, targets, interval))
        module = [sys.executable, "-m", "deploy.observability.load", served.grpc]
        load = stack.enter_context(program("load", module, folder))
        yield Observed(served, load, url, traces.url if traces else "")


def demo(folder: Path) -> Path:
    """Write the demo's models: one of them with a response cache."""
    write_demo(folder, report=lambda line: None)
    for model, edit in _EDITS.items():
        with (folder / model / "config.pbtxt").open("a") as configuration:
            configuration.write(f"\n{edit}\n")
    return folder


def _has(name: str) -> bool:
    return (TOOLS / name).exists()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="make observe", allow_abbrev=False)
    parser.add_argument("--seconds", type=float, help="end then; else with Ctrl-C")
    parser.add_argument("--repository", type=Path, help="models to serve instead of the demo's")
    parser.add_argument("--interval", default="5s", help="between scrapes: 5s")
    parser.add_argument(
        "--target", action="append", default=[], help="the metrics port of another server"
    )
    parser.add_argument("--command", default=shlex.join(SERVE), help="what starts the server")
    chosen, options = parser.parse_known_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    with tempfile.TemporaryDirectory(prefix="penstock-observe-") as temporary:
        try:
            with observed(
                Path(temporary),
                *options,
                repository=chosen.repository,
                command=shlex.split(chosen.command),
                interval=chosen.interval,
                further=chosen.target,
            ) as running:
                print(addresses(running), flush=True)
                _wait(running, chosen.seconds or inf)
        except KeyboardInterrupt:
            return 0
        except StackError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    """End what runs, from wherever this process is; asked twice it does not wait for them."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _wait(running: Observed, seconds: float) -> None:
    """Return when it is time; raises if something ends by itself."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        if ended := running.ended():
            raise StackError(f"{ended.name} ended:\n{ended.last_lines()}")


def addresses(running: Observed) -> str:
    """The addresses of the stack, one a line."""
    lines = [
        "",
        f"Server        http://{running.server.http}   gRPC {running.server.grpc}",
        f"Metrics       http://{running.server.metrics}/metrics",
    ]
    missing = "not installed; the reason is above"
    lines.append(f"Prometheus    {running.prometheus or missing}")
    lines.append(f"Jaeger        {running.jaeger or missing}")
    if running.prometheus:
        lines.append(f"  a graph     {running.prometheus}/graph?g0.expr={_EXAMPLE}&g0.tab=0")
        lines.append(f"  alerts      {running.prometheus}/alerts")
    if running.jaeger:
        lines.append(f"  traces      {running.jaeger}/api/traces?service={_SERVICE}&limit=5")
    return "\n".join([*lines, "", "A load runs. Ctrl-C ends everything.", ""])


_SERVICE = "triton-inference-server"
_EXAMPLE = "sum%20by%20(model)%20(rate(nv_inference_request_success%5B1m%5D))"


if __name__ == "__main__":
    sys.exit(main())
