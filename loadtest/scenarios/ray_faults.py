"""A fleet on Ray under load: scaled 1 to 3 to 1, updated, a node killed, a node without models.

Three nodes of Ray that are processes of this machine, Envoy over the endpoint files, and a client
that tries again. Nothing may be wrong, nothing lost. By the Python of `make ray`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from loadtest.ray_cluster import Traffic, cluster, envoy, kill_node, node, write_models
from loadtest.report import Row, arguments, show
from penstock.ray import Fleet, FleetSettings, Pace, ScalingPolicy, start

_SCALING = ScalingPolicy(1, 3, queue_seconds=0.05, up_seconds=2.0, down_seconds=4.0)
_THREE = ScalingPolicy(3, 3)
_PACE = Pace(drain_seconds=2.0, removed_seconds=1.0)

# What runs the servers; on the nodes that a file names the models' folder is not there.
_PYTHON = """#!{python}
import os, sys
bare = os.environ["RAY_NODE_ID"] in open("{bare}").read()
named = [a.replace("{models}", "{models}.absent") if bare else a for a in sys.argv[1:]]
os.execv("{python}", ["{python}", *named])
"""


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    with tempfile.TemporaryDirectory() as temporary, cluster() as nodes:
        folder = Path(temporary)
        models = write_models(folder / "models")
        settings = FleetSettings(
            [
                f"--model-repository={models}",
                "--model-control-mode=explicit",
                *(f"--load-model={name}" for name in ("add_one", "count", "identity")),
                "--log-info=false",
            ],
            str(folder / "endpoints"),
            scaling=_SCALING,
            pace=_PACE,
            python=str(_python(folder, models)),
        )
        fleet = start(settings)
        try:
            fleet.wait(1)
            with envoy(folder / "endpoints") as (_, grpc):
                rows = _rows(fleet, f"127.0.0.1:{grpc}", nodes, settings, folder)
        finally:
            fleet.stop()
    show("a fleet on three nodes of Ray", rows, options.json)
    if any(float(row["wrong"]) or float(row["lost"]) for row in rows):
        sys.exit("answers were wrong or lost")


def _python(folder: Path, models: Path) -> Path:
    file = folder / "python"
    (folder / "bare").touch()
    file.write_text(_PYTHON.format(python=sys.executable, bare=folder / "bare", models=models))
    file.chmod(0o755)
    return file


def _rows(
    fleet: Fleet, target: str, nodes: Any, settings: FleetSettings, folder: Path
) -> Sequence[Row]:
    def update() -> None:
        fleet.update([*settings.arguments, "--id=second"])
        fleet.wait(3)

    def change() -> None:
        assert fleet.load("late") == {}
        assert fleet.set_alias("always", {"targets": [{"model": "late", "weight": 100}]}) == {}
        _check_models(fleet)

    def kill() -> None:
        head = ray.get_runtime_context().get_node_id()
        killed = (_nodes(fleet) - {head}).pop()
        kill_node(killed)
        while killed in _nodes(fleet):  # the files still name it
            time.sleep(0.1)
        fleet.wait(3)
        _check_models(fleet)

    def without() -> None:
        bare = nodes.add_node(**node(4)).node_id
        (folder / "bare").write_text(bare)
        fleet.scale(ScalingPolicy(6, 6))  # three more, which Ray spreads over three nodes
        status = fleet.wait(6)
        assert bare not in _nodes(fleet)
        assert f"on node {bare}" in status["last_failure"], status["last_failure"]
        print(f"a node without the models: {status['last_failure']}")

    rows = [
        _row("1 to 3 by queue time", lambda: _wait_ready(fleet, 3), target, loops=16),
        _row("3 to 1", lambda: _wait_ready(fleet, 1), target, loops=1, streams=2),
    ]
    fleet.scale(_THREE)
    fleet.wait(3)
    return [
        *rows,
        _row("rolling update of 3", update, target, loops=6, streams=4),
        _row("load and alias on 3", change, target, loops=6, streams=4),
        _row("a node killed", kill, target, loops=6, streams=4, resume=True),
        _row("a node without models", without, target, loops=6, streams=4),
    ]


def _wait_ready(fleet: Fleet, replicas: int) -> None:
    fleet.wait(replicas, 300.0)


def _nodes(fleet: Fleet) -> set[str]:
    """The nodes that have a replica."""
    return {replica["node"] for replica in fleet.status()["replicas"].values()}


def _check_models(fleet: Fleet) -> None:
    for name, replica in fleet.status()["replicas"].items():
        assert {"late", "always"} <= set(replica["models"]), (name, replica)


def _row(
    what: str,
    act: Callable[[], None],
    target: str,
    loops: int,
    streams: int = 0,
    resume: bool = False,
) -> Row:
    """Act under a load, from a second before it to a second behind it."""
    with Traffic(target, loops, streams, resume) as traffic:
        time.sleep(1.0)
        began = time.monotonic()
        act()
        seconds = time.monotonic() - began
        time.sleep(1.0)
    print(f"{what}: {seconds:.1f} s", flush=True)
    calls, streamed = traffic.calls, traffic.streams
    for error, count in (calls.errors + streamed.errors).items():
        print(f"{what}: {count} of {error}")
    return {
        "what": what,
        "seconds": seconds,
        "calls": float(calls.right),
        "streams": float(streamed.right),
        "wrong": float(calls.wrong + streamed.wrong),
        "lost": float(calls.lost + streamed.lost),
        "longest ms": calls.longest * 1e3,
    }


if __name__ == "__main__":
    main()
