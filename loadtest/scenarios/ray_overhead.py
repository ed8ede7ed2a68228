"""What both ways onto Ray cost a small call, beside a bare Penstock, in one run.

A fleet of one replica asked directly and through Envoy; an application of Ray Serve with one
replica through its gRPC and HTTP proxies. By the Python of `make ray`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ray import serve
from ray.serve.config import HTTPOptions, gRPCOptions

from loadtest.load import Load, run
from loadtest.process import free_ports, penstock
from loadtest.ray_cluster import cluster, envoy, write_models
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.unary import write_message
from penstock.ray import FleetSettings, start
from penstock.ray.serve_application import SERVICERS, application

_PATH = "/v2/models/identity/infer"
_EACH = (1, 8, 32)


def main() -> None:
    options = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        served = [
            f"--model-repository={write_models(folder / 'models')}",
            "--model-control-mode=explicit",
            "--load-model=identity",
            "--log-info=false",
        ]
        grpc = write_message(folder, "identity", 16)
        http = folder / "body.json"
        http.write_text(json.dumps(_body()))
        bare = stack.enter_context(penstock(folder / "models", *served[1:]))
        stack.enter_context(cluster(nodes=1))
        places = {
            "bare, gRPC": (bare.target, grpc, ""),
            "bare, HTTP": (f"127.0.0.1:{bare.http_port}", str(http), _PATH),
        }
        for name, target in stack.enter_context(_fleet(served, folder / "endpoints")).items():
            places[name] = (target, *((grpc, "") if "gRPC" in name else (str(http), _PATH)))
        for name, target in stack.enter_context(_serve(served)).items():
            places[name] = (target, *((grpc, "") if "gRPC" in name else (str(http), _PATH)))

        def measure() -> list[Row]:
            return [
                _row(name, Load(target, file, in_flight, options.seconds, path=path))
                for in_flight in _EACH
                for name, (target, file, path) in places.items()
            ]

        rows = median_rows(options.rounds, measure)
    show("a call of 64 bytes: both ways onto Ray beside a bare server", rows, options.json)


def _body() -> dict[str, object]:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": [0.0] * 16}
    return {"inputs": [tensor]}


def _row(name: str, load: Load) -> Row:
    outcome = run(load)
    return {
        "what": name,
        "in flight": str(load.in_flight),
        "calls/s": outcome.calls_per_second,
        "p50 ms": outcome.latency_p50,
        "p99 ms": outcome.latency_p99,
    }


@contextmanager
def _fleet(served: list[str], folder: Path) -> Iterator[dict[str, str]]:
    fleet = start(FleetSettings(served, str(folder)))
    try:
        (replica,) = fleet.wait(1)["replicas"].values()
        with envoy(folder) as (http, grpc):
            yield {
                "on Ray, gRPC": replica["grpc"],
                "on Ray, HTTP": replica["http"],
                "on Ray, Envoy, gRPC": f"127.0.0.1:{grpc}",
                "on Ray, Envoy, HTTP": f"127.0.0.1:{http}",
            }
    finally:
        fleet.stop()


@contextmanager
def _serve(served: list[str]) -> Iterator[dict[str, str]]:
    http, grpc = free_ports(2)
    serve.start(
        http_options=HTTPOptions(host="127.0.0.1", port=http),
        grpc_options=gRPCOptions(port=grpc, grpc_servicer_functions=SERVICERS),
    )
    try:
        serve.run(application(served), route_prefix="/")
        yield {"Serve, gRPC": f"127.0.0.1:{grpc}", "Serve, HTTP": f"127.0.0.1:{http}"}
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
