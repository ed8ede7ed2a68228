"""Load tools of others for many minutes beside each other: no error, and nothing that grows.

    python -m loadtest.tools.soak [--minutes 5] [--json soak.json] [--out FOLDER]

ghz calls `simple` and reads tokens of `tiny_llm` at fixed rates. Users of locust do so over gRPC,
HTTP and OpenAI's endpoints, embed sentences with `minilm`, and check what they get; others give up
calls and streams under way, or read a stream far more slowly than it is made. The status is 1 if a
report of a tool has an error, the server has failed a request that nobody cancelled, or it holds
more at rest than before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from loadtest.places import results_file, results_folder
from loadtest.scenarios.streams import REPEAT
from loadtest.soak.report import holdings, markdown_table
from loadtest.soak.server import Server, running
from loadtest.soak.watch import Sample, Watch, settled
from loadtest.tools import ghz, locust
from loadtest.tools.outcome import Outcome, failed_by_reason
from loadtest.tools.programs import ToolError
from loadtest.tools.report import Addresses
from penstock.demo import write_demo

_WARM_UP = 15.0
_REST = 3.0
_SAMPLING = 5.0
_USERS = 12
_PAUSE = 0.02  # seconds between what each of them does
_MORE_MEMORY = 16.0  # MiB that the server may hold at rest beyond what it held before


@dataclass(frozen=True, slots=True)
class Soaked:
    """What the tools and the server say; `failed` are requests by reason, in the server.

    `broken` are faults of the run itself, such as a tool that ended without a report.
    """

    minutes: float
    outcomes: Sequence[Outcome]
    failed: Mapping[str, int]
    watch: Watch
    before: Sample
    after: Sample
    status: int | None
    left: Sequence[str]
    broken: Sequence[str] = ()

    @property
    def faults(self) -> list[str]:
        """Why the soak is not passed; none if it is."""
        found = [*self.broken]
        found += [f"{e.name}: {e.errors} errors {e.messages}" for e in self.outcomes if e.errors]
        found += [f"{each.name}: no calls" for each in self.outcomes if not each.calls]
        found += [
            f"{count} requests failed: {reason}"
            for reason, count in self.failed.items()
            if count and reason != "CANCELED"
        ]
        for name in ("descriptors", "threads", "processes", "shared_objects"):
            grown = getattr(self.after, name) - getattr(self.before, name)
            found += [f"{grown} {name} more"] if grown > 0 else []
        grown_memory = self.after.server_memory - self.before.server_memory
        found += [f"{grown_memory:.0f} MiB more"] if grown_memory > _MORE_MEMORY else []
        found += [f"exit status {self.status}"] if self.status else []
        return [*found, *(f"left behind: {name}" for name in self.left)]

    def as_markdown(self) -> str:
        """The tables of `docs/load-tests.md`."""
        rows = [
            [e.name, e.calls, e.errors, *(f"{v:.1f}" for v in (e.per_second, e.p50, e.p99))]
            for e in self.outcomes
        ]
        heads = ["tool: request", "calls", "errors", "a second", "p50 ms", "p99 ms"]
        reasons = ", ".join(f"{reason} {n}" for reason, n in self.failed.items() if n)
        return "\n\n".join(
            [
                f"`python -m loadtest.tools.soak --minutes {self.minutes:g}` at `{_commit()}`:",
                markdown_table(heads, rows),
                holdings(self.watch, self.before, self.after),
                f"Memory of the server over the second half: {self.watch.slope():+.1f} MiB an"
                f" hour. Failed in the server: {reasons or 'none'}.\n",
            ]
        )


def main() -> None:
    options = _options()
    try:
        found = soak(options.minutes * 60, _WARM_UP, options.out)
    except ToolError as error:
        sys.exit(str(error))
    print(found.as_markdown())
    if options.json is not None:
        content = {
            "outcomes": [asdict(each) for each in found.outcomes],
            "samples": found.watch.as_rows(),
            "failed": found.failed,
            "faults": found.faults,
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit("; ".join(found.faults) or 0)


def soak(
    seconds: float, warm_up: float, out: Path, users: int = _USERS, pause: float = _PAUSE
) -> Soaked:
    """Put the tools on a server of our own, with their reports in the folder `out`.

    Each of the users of locust pauses for so many seconds between what it does.
    Raises `ToolError` where the warm-up fails; what fails later stands in the result.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _write_models(folder / "models")
        server = stack.enter_context(running(folder / "models", folder))
        watch = Watch(server.process.pid)
        _, faults = _put_on(server, (warm_up, users, pause), folder, Watch(server.process.pid))
        if faults:
            raise ToolError("; ".join(f"warm-up: {fault}" for fault in faults))
        time.sleep(_REST)
        before = watch.look()
        outcomes, broken = _put_on(server, (seconds, users, pause), out, watch)
        after = settled(watch, before)
        try:
            failed = failed_by_reason(f"http://127.0.0.1:{server.metrics_port}/metrics")
        except ToolError as error:
            failed = {}
            broken.append(str(error))
        server.stop()
    status, left = server.status, watch.left()
    return Soaked(seconds / 60, outcomes, failed, watch, before, after, status, left, broken)


def _write_models(repository: Path) -> None:
    write_demo(repository, report=lambda line: None)
    (repository / "repeat" / "1").mkdir(parents=True)
    (repository / "repeat" / "config.pbtxt").write_text(REPEAT)


def _put_on(
    server: Server, load: tuple[float, int, float], folder: Path, watch: Watch
) -> tuple[list[Outcome], list[str]]:
    """All tools at the same time, while the server is watched: their outcomes, and faults.

    The load is its seconds, users and their pause.
    """
    seconds, users, pause = load
    addresses = Addresses(f"127.0.0.1:{server.grpc_port}", f"127.0.0.1:{server.http_port}")
    kinds = [*locust.well_behaved(addresses), "LeavingUser", "SlowUser"]
    with ThreadPoolExecutor(3) as pool:
        tools: list[tuple[str, Future[list[Outcome]]]] = [
            ("ghz", pool.submit(_unary, addresses, seconds, folder)),
            ("ghz", pool.submit(_streams, addresses, seconds, folder)),
            (
                "locust",
                pool.submit(locust.put_on, addresses, seconds, folder, kinds, users, pause),
            ),
        ]
        while wait([running_tool for _, running_tool in tools], _SAMPLING).not_done:
            watch.sample()
    return gathered(tools)


def _unary(addresses: Addresses, seconds: float, folder: Path) -> list[Outcome]:
    return [ghz.unary(addresses, seconds, folder, "--rps=50")]


def _streams(addresses: Addresses, seconds: float, folder: Path) -> list[Outcome]:
    return [ghz.streams(addresses, seconds, folder, "--rps=2")]


def gathered(
    tools: Sequence[tuple[str, Future[list[Outcome]]]],
) -> tuple[list[Outcome], list[str]]:
    """What tools that have ended say, and a fault for each that failed."""
    outcomes: list[Outcome] = []
    faults: list[str] = []
    for tool, ended in tools:
        try:
            outcomes += [replace(each, name=f"{tool}: {each.name}") for each in ended.result()]
        except ToolError as error:
            faults.append(f"{tool}: {error}")
    return outcomes, faults


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() or "unknown"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    parser.add_argument(
        "--out",
        type=results_folder,
        default="build/loadtest/soak",
        help="the tools' own reports",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
