"""`make kube`: the chart in a cluster with a real control plane, and what came of it, as tables.

    python -m kube [kinds] [variants] [checks] [rollouts] [autoscaling] [--keep FOLDER]

Without names all of it. The exit status is 1 if something was not as expected.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from deploy.observability.programs import StackError
from kube import cluster as clusters
from kube.checks import Check, checks
from kube.cluster import Cluster, cluster
from kube.kinds import apply_ours, define
from kube.nodes import Nodes
from kube.releases import table
from kube.rollouts import Event, Moment, autoscaling, rollouts
from kube.traffic import Tally
from kube.variants import Said, add_nodes, prepare, variants
from programs.places import find

PARTS = ("kinds", "variants", "checks", "rollouts", "autoscaling")


class Row(Protocol):
    """A line of a table."""

    @property
    def cells(self) -> Sequence[object]:
        """Its cells."""


def _print(heads: Sequence[str], rows: Iterable[Row]) -> list[Any]:
    """Print rows as they come, and the table at the end."""
    seen = []
    for row in rows:
        seen.append(row)
        print(f"    {row.cells[0]}", flush=True)
    print(f"\n{table(heads, [row.cells for row in seen])}\n", flush=True)
    return seen


class Run:
    """Parts of a run, in a cluster; `faults` says what was not as expected."""

    def __init__(self, cluster: Cluster, nodes: Nodes, folder: Path) -> None:
        self._cluster, self._nodes, self._folder = cluster, nodes, folder
        self.faults: list[str] = []
        self.parts: Mapping[str, Callable[[], None]] = {
            name: getattr(self, f"_{name}") for name in PARTS
        }

    def _kinds(self) -> None:
        rows = _print(Check.HEADS, (*define(self._cluster.api), *apply_ours(self._cluster.api)))
        self.faults += [row.about for row in rows if not row.right]

    def _variants(self) -> None:
        rows = _print(Said.HEADS, variants(self._cluster, self._folder))
        words = ("REFUSED", "OTHER PODS", "AGAIN A ROLLOUT", "UNDECIDED")
        self.faults += [
            row.variant for row in rows if any(word in str(row.cells) for word in words)
        ]

    def _checks(self) -> None:
        rows = _print(Check.HEADS, checks(self._cluster, self._folder))
        self.faults += [row.about for row in rows if not row.right]

    def _rollouts(self) -> None:
        if not find("envoy"):
            print("LEFT OUT: there is no envoy: `make tools` says why\n")
            return
        rows = _print(Event.HEADS, rollouts(self._cluster, self._nodes, self._folder))
        for row in rows:
            cut = row.tally.cut if "death" not in row.name else 0
            if row.tally.failed or row.tally.wrong or cut:
                self.faults.append(f"{row.name}: {row.tally.errors[:5]}")

    def _autoscaling(self) -> None:
        if not find("envoy"):
            print("LEFT OUT: there is no envoy: `make tools` says why\n")
            return
        moments: list[Moment] = []
        for seen in autoscaling(self._cluster, self._nodes, self._folder):
            if isinstance(seen, Tally):
                print(f"    {seen.calls} calls, {seen.failed} failed, {seen.wrong} wrong")
                if seen.failed or seen.wrong:
                    self.faults.append(f"autoscaling: {seen.errors[:5]}")
            else:
                moments.append(seen)
                print(f"    {seen}", flush=True)
        print(f"\n{table(Moment.HEADS, [each.cells for each in moments])}\n")
        if max(each.ready for each in moments) < 3 or moments[-1].ready != 1:
            self.faults.append("the autoscaler did not go up to 3 pods and back to 1")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser("make kube", allow_abbrev=False)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--keep", type=Path, help="a new folder for data and logs")
    given = parser.parse_args(arguments)
    if unknown := {*given.parts} - {*PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    if clusters.missing():
        print(f"==> building Kubernetes {clusters.VERSION}, half an hour on two cores", flush=True)
    for line in clusters.refresh():
        print(f"    {line}", flush=True)
    if reason := clusters.missing():
        print(f"LEFT OUT: {reason}")
        return 0
    folder = given.keep or Path(tempfile.mkdtemp(prefix="penstock-kube-"))
    folder.mkdir(exist_ok=True)
    try:
        faults = _run([part for part in PARTS if part in (given.parts or PARTS)], folder)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(f"NOT AS EXPECTED: {fault}")
    return 1 if faults else 0


def _run(parts: Sequence[str], folder: Path) -> list[str]:
    began = time.monotonic()
    with cluster(folder) as running, Nodes(running.api, folder / "pods") as nodes:
        version = running.api.call("GET", "/version").json()
        print(
            f"==> Kubernetes {clusters.VERSION} ({version['goVersion']}), ready in "
            f"{running.ready_seconds:.1f} s",
            flush=True,
        )
        prepare_nodes(running, nodes)
        run = Run(running, nodes, folder)
        for part in parts:
            print(f"==> {part}", flush=True)
            run.parts[part]()
    print(f"==> {time.monotonic() - began:.0f} s")
    return run.faults


def prepare_nodes(running: Cluster, nodes: Nodes) -> None:
    """Add the nodes, and what variants name."""
    add_nodes(nodes)
    prepare(running.api)


if __name__ == "__main__":
    sys.exit(main())
