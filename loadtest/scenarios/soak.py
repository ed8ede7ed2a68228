"""A mix of verified calls and of trouble for many minutes: what is lost, wrong, or left behind.

    python -m loadtest.scenarios.soak [--minutes 30] [--seed 1] [--json soak.json] [--keep FOLDER]
    python -m loadtest.scenarios.soak --minutes 60 --faults
    python -m loadtest.scenarios.soak --server "/path/to/tritonserver --backend-directory=..."

Clients call at fixed rates, together some hundred times a second, which two cores can bear; only
the loopback is used. Processes of models are killed and stopped, models loaded and unloaded,
clients leave, stall, vanish and send nonsense. With `--faults` the server has an access policy, an
audit log, traces and Redis, and disks, descriptors, collector and Redis fail too, for which it
needs root (`loadtest.scenarios.chaos` has each alone). The status is 1 if an answer was wrong, a
call was lost or failed without a cause, or something was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from loadtest.places import results_file
from loadtest.soak.faults import IN_A_SOAK, OPEN_POLICY, Fault, Site, suffer
from loadtest.soak.ledger import Ledger
from loadtest.soak.models import SoakModels
from loadtest.soak.report import Report
from loadtest.soak.rude import Rude
from loadtest.soak.server import OPTIONS, Server, running
from loadtest.soak.traffic import Factors, Traffic
from loadtest.soak.trouble import TroubleMaker
from loadtest.soak.watch import Sample, Watch, settled
from loadtest.soak.wire import GrpcClient, HttpClient

_MOST_IN_FLIGHT = 400
_SAMPLING = 5.0
_BEAT = 0.1
_WARM_UP = 15.0
_REST = 3.0


@dataclass(slots=True)
class Soak:
    """The clients, each at its rate, until the time is up."""

    ledger: Ledger
    traffic: Traffic
    rude: Rude
    trouble: TroubleMaker
    watch: Watch
    rate: float = 1.0

    async def warm_up(self) -> None:
        """A few seconds of load without trouble: what is made at first use is made then."""
        await self._load(time.monotonic() + _WARM_UP)

    async def run(self, minutes: float) -> None:
        """Load for so long, then wait for what is under way."""
        end = time.monotonic() + minutes * 60
        parts = self._look(end), self._beat(end), self._make_trouble(end), self._load(end)
        await asyncio.gather(*parts)

    async def _load(self, end: float) -> None:
        paces = [
            self._pace(action, per_second * self.rate, end)
            for action, per_second in self._rates().items()
        ]
        await asyncio.gather(*paces)

    def _rates(self) -> dict[Callable[[], Awaitable[None]], float]:
        traffic, rude = self.traffic, self.rude
        return {
            traffic.unary: 40.0,
            traffic.stream: 2.0,
            traffic.http_json: 8.0,
            traffic.http_binary: 12.0,
            traffic.generate: 3.0,
            traffic.generate_stream: 2.0,
            traffic.sequence: 1.0,
            traffic.shared_memory: 0.5,
            traffic.poll: 2.0,
            traffic.large: 0.1,
            rude.cancel: 3.0,
            rude.cancel_stream: 1.0,
            rude.read_slowly: 0.2,
            rude.vanish: 1.0,
            rude.malformed: 2.0,
            rude.huge_json: 0.02,
        }

    async def _pace(
        self, action: Callable[[], Awaitable[None]], per_second: float, end: float
    ) -> None:
        """Begin an action at fixed times, whether or not those before it are done."""
        loop, due = asyncio.get_running_loop(), time.monotonic() + self.traffic.chance.random()
        begun: set[asyncio.Future[None]] = set()
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += 1 / per_second
            if len(begun) >= _MOST_IN_FLIGHT:
                self.ledger.held_back += 1
                continue
            task = asyncio.ensure_future(action(), loop=loop)
            begun.add(task)
            task.add_done_callback(begun.discard)
        if begun:
            await asyncio.gather(*begun)

    async def _make_trouble(self, end: float) -> None:
        while time.monotonic() < end - 10:
            await asyncio.sleep(self.traffic.chance.uniform(2, 6))
            await self.trouble.make()

    async def _beat(self, end: float) -> None:
        """Note for how long the clients stand still: what is late then is not the server's."""
        ledger, last = self.ledger, time.monotonic()
        while last < end:
            await asyncio.sleep(_BEAT)
            now = time.monotonic()
            ledger.standstill = max(ledger.standstill, now - last - _BEAT)
            last = now

    async def _look(self, end: float) -> None:
        while time.monotonic() < end:
            self.watch.sample()
            await asyncio.sleep(_SAMPLING)


async def _soak(
    server: Server,
    models: SoakModels,
    watch: Watch,
    faults: Sequence[Fault],
    options: argparse.Namespace,
) -> tuple[Ledger, Sample]:
    ledger, chance = Ledger(), random.Random(options.seed)
    factors = Factors()
    factors.begin(2.0)

    @asynccontextmanager
    async def clients() -> AsyncIterator[Soak]:
        grpc = GrpcClient(f"127.0.0.1:{server.grpc_port}")
        http = HttpClient(server.http_port, server.metrics_port)
        traffic = Traffic(ledger, grpc, http, chance, factors)
        rude = Rude(traffic, server.grpc_port, server.http_port)
        site = Site(server, models, traffic)
        further = [partial(_suffer, fault, site) for fault in faults]
        maker = TroubleMaker(traffic, models, watch.has, further)
        yield Soak(ledger, traffic, rude, maker, watch, options.rate)
        await grpc.close()
        await http.close()

    async with clients() as soak:
        await soak.warm_up()
    await asyncio.sleep(_REST)
    before = watch.look()
    async with clients() as soak:
        await soak.run(options.minutes)
        await soak.trouble.restore()
    return ledger, before


async def _suffer(fault: Fault, site: Site) -> None:
    await suffer(fault, site)


def _faults(folder: Path, stack: ExitStack) -> tuple[list[Fault], list[str]]:
    """The faults that can be made here, and what the server is started with for them."""
    faults: list[Fault] = []
    policy = folder / "policy.toml"
    policy.write_text(OPEN_POLICY)
    options = [*OPTIONS, f"--access-policy={policy}"]
    for kind in IN_A_SOAK:
        own = folder / kind.__name__
        own.mkdir()
        fault = kind(own)
        stack.callback(fault.close)
        if missing := fault.missing():
            print(f"not made: {fault.name}, there is no {missing}", file=sys.stderr)
            continue
        faults.append(fault)
        options += fault.options()
    if any(option.startswith("--cache-config=redis") for option in options):
        options = [each for each in options if not each.startswith("--cache-config=local")]
    return faults, options


def _report(folder: Path, options: argparse.Namespace) -> Report:
    repository, peer = folder / "models", bool(options.server)
    models = SoakModels(repository, folder / "pids", peer=peer)
    with ExitStack() as stack:
        faults, settings = _faults(folder, stack) if options.faults else ([], OPTIONS)
        other = shlex.split(options.server)
        server = stack.enter_context(running(repository, folder, other, settings))
        watch = Watch(server.process.pid)
        ledger, before = uvloop.run(_soak(server, models, watch, faults, options))
        after = settled(watch, before)
        server.stop()
    temporary = [f"{path.name} in TMPDIR" for path in server.temporary.iterdir()]
    return Report(
        f"python -m loadtest.scenarios.soak {' '.join(sys.argv[1:])}".strip(),
        _commit(),
        options.minutes,
        ledger,
        watch,
        before,
        after,
        server.status,
        [*watch.left(), *temporary],
        server.log.read_text(errors="replace").count("Traceback (most recent call last)"),
    )


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() or "unknown"


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        report = _report(folder, options)
    print(report.as_markdown())
    for outcome, examples in report.ledger.examples.items():
        for example in examples:
            print(f"{outcome}: {example}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    sys.exit("; ".join(report.failures) or 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual rates")
    parser.add_argument("--faults", action="store_true", help="of disks, descriptors and others")
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    parser.add_argument("--keep", type=Path, help="an empty folder that keeps models and log")
    parser.add_argument("--server", default="", help="the command of another server")
    return parser.parse_args()


if __name__ == "__main__":
    main()
