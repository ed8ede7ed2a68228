"""What the machine does to the server, one fault after another, while verified calls go on.

    python -m loadtest.scenarios.chaos [--faults 'Disk*'] [--json chaos.json]

Each fault has a server of its own. Before it and after it no call may fail; while it lasts only
those of the models that it is about; nothing may be wrong or lost at any time. Shown are the calls,
and the seconds from the end of the fault until every kind of call has been answered right. The
status is 1 if a fault did more than its own. Needs root, and makes a network of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import uvloop

from loadtest.places import results_file
from loadtest.soak.answers import FORMULAS
from loadtest.soak.faults import FAULTS, OPEN_POLICY, Fault, Site, suffer
from loadtest.soak.ledger import Ledger
from loadtest.soak.models import SoakModels
from loadtest.soak.report import markdown_table
from loadtest.soak.server import OPTIONS, running
from loadtest.soak.traffic import Factors, Traffic
from loadtest.soak.wire import GrpcClient, HttpClient

_BEFORE = 4.0
_AFTER = 5.0
_INSIDE = "PENSTOCK_CHAOS_NETWORK"
"""Set where the process is in a network of its own."""

_OUTCOMES = ("right", "expected", "unexpected", "wrong", "lost")

Row = dict[str, Any]


async def _paced(action: Callable[[], Awaitable[None]], per_second: float, end: float) -> None:
    begun: list[asyncio.Future[None]] = []
    due = time.monotonic()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += 1 / per_second
        begun.append(asyncio.ensure_future(action()))
    await asyncio.gather(*begun)


async def _under(fault: Fault, site: Site) -> Row:
    traffic = site.traffic
    ledger = traffic.ledger
    for name in FORMULAS:
        await traffic.ask(name)
    end = time.monotonic() + _BEFORE + fault.seconds + _AFTER
    load = asyncio.gather(
        _paced(traffic.unary, 40, end),
        _paced(traffic.http_json, 8, end),
        _paced(traffic.http_binary, 12, end),
        _paced(traffic.stream, 2, end),
        _paced(traffic.generate_stream, 2, end),
        _paced(traffic.poll, 1, end),
    )
    await asyncio.sleep(_BEFORE)
    seconds = await suffer(fault, site)
    await load
    return {
        "fault": fault.name,
        "lasts s": fault.seconds,
        **{kind: ledger.total(kind) for kind in _OUTCOMES},
        "recovery s": round(seconds, 2),
        "seen": await fault.seen(site),
        "examples": {**ledger.examples},
    }


async def _clients(fault: Fault, site: Callable[[Traffic], Site], ports: tuple[int, ...]) -> Row:
    grpc_port, http_port, metrics_port = ports
    grpc, http = GrpcClient(f"127.0.0.1:{grpc_port}"), HttpClient(http_port, metrics_port)
    factors = Factors()
    factors.begin(2.0)
    try:
        return await _under(fault, site(Traffic(Ledger(), grpc, http, random.Random(1), factors)))
    finally:
        await grpc.close()
        await http.close()


def _row(kind: type[Fault]) -> Row:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fault = kind(folder)
        stack.callback(fault.close)
        if missing := fault.missing():
            return {"fault": fault.name, "seen": f"not made: there is no {missing}"}
        models = SoakModels(folder / "models", folder / "pids")
        models.add_hungry()
        policy = folder / "policy.toml"
        policy.write_text(OPEN_POLICY)
        own = [*fault.options(), f"--access-policy={policy}"]
        cached = any(option.startswith("--cache-config") for option in own)
        usual = [one for one in OPTIONS if not (cached and one.startswith("--cache-config"))]
        running_server = running(folder / "models", folder, (), [*usual, *own], fault.environment())
        server = stack.enter_context(running_server)
        ports = (server.grpc_port, server.http_port, server.metrics_port)
        row = uvloop.run(_clients(fault, lambda traffic: Site(server, models, traffic), ports))
        server.stop()
        log = server.log.read_text(errors="replace")
        faults = log.count("Traceback (most recent call last)")
        if faults:
            print(log[log.index("Traceback (most recent call last)") :][:4000], file=sys.stderr)
        return row | {"status": server.status, "tracebacks": faults}


def _failed(row: Row) -> str:
    if "right" not in row:
        return ""
    wrong = [kind for kind in ("unexpected", "wrong", "lost", "status", "tracebacks") if row[kind]]
    return f"{row['fault']}: {', '.join(wrong)} {row['examples']}" if wrong else ""


_SHOWN = (
    "fault",
    "lasts s",
    "right",
    "expected",
    "unexpected",
    "wrong",
    "lost",
    "recovery s",
    "seen",
)


def main() -> None:
    options = _options()
    if _INSIDE not in os.environ:
        command = [sys.executable, "-m", "loadtest.scenarios.chaos", *sys.argv[1:]]
        os.environ[_INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--", *command])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    rows = []
    for kind in FAULTS:
        if fnmatch(kind.__name__, options.faults):
            rows.append(_row(kind))
            print(f"{kind.__name__}: {rows[-1]}", file=sys.stderr, flush=True)
    print(markdown_table(_SHOWN, [[row.get(name, "") for name in _SHOWN] for row in rows]))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit("\n".join(filter(None, map(_failed, rows))) or 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--faults", default="*", help="names of their classes, as a pattern")
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
