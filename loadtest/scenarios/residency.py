"""Forty models in memory for eight: called in turn and by favour, with kills and reloads.

    python -m loadtest.scenarios.residency [--minutes 30] [--seed 1] [--keep FOLDER]

Models in Python of 32 MiB, ONNX models in processes, a language model, ensembles and models that
call others are called over gRPC, HTTP and OpenAI's API: half of the calls by Zipf's law, half round
robin. Processes are killed, models reloaded and unloaded meanwhile. One small model is always
loaded; its p99 is measured alone first. The status is 1 if an answer was wrong, a call was lost or
failed without a cause, or models took more memory than the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import uvloop

from loadtest.residency_models import ResidencyModels
from loadtest.soak.ledger import CallError
from loadtest.soak.server import Server, running
from loadtest.soak.wire import GrpcClient, message, output
from penstock.protocol import grpc_service_pb2 as pb
from penstock.system.process_memory import proportional_bytes, with_descendants

_MIB = 1 << 20
_GRACE = 10.0
"""Seconds after a kill in which calls of what it meets may fail."""
_CLIENTS = 8
_KILL_SECONDS, _RELOAD_SECONDS = 7.0, 11.0
_PATIENCE = 120.0
_LOAD_SECONDS = 100
_PID = re.compile(r'^penstock_model_process_pid\{.*?model="([^"]+)".*\} (\S+)$', re.MULTILINE)
_HELD = re.compile(r"^penstock_model_resident_bytes\{.*\} (\S+)$", re.MULTILINE)
_TIMES = re.compile(r"^penstock_model_(loading|resident)_seconds_total\{.*\} (\S+)$", re.MULTILINE)
_LOADS = re.compile(r"^penstock_model_loads_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Outcomes:
    """What became of the calls: counts, examples of what went wrong, and seconds by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kills: int = 0
    reloads: int = 0
    unloads: int = 0
    most_counted: float = 0.0
    most_measured: float = 0.0
    alone: list[float] = field(default_factory=list)


class Load:
    """The clients of one server, and the trouble that is made beside them."""

    def __init__(self, server: Server, models: ResidencyModels, seed: int) -> None:
        self._server = server
        self._models = models
        self._chance = random.Random(seed)
        self._grpc: GrpcClient
        self._http = f"http://127.0.0.1:{server.http_port}"
        self._session: aiohttp.ClientSession
        self._troubles: dict[str, tuple[float, str]] = {}
        self._next = 0
        self._weights = [1 / rank for rank in range(1, len(models.callable) + 1)]
        self.outcomes = Outcomes()

    async def run(self, minutes: float) -> None:
        """Measure the resident model alone, then make load and trouble for so long."""
        self._grpc = GrpcClient(f"127.0.0.1:{self._server.grpc_port}", _PATIENCE)
        timeout = aiohttp.ClientTimeout(total=_PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as self._session:
            await self._call_resident(time.monotonic() + 10, self.outcomes.alone)
            end = time.monotonic() + minutes * 60
            clients = [self._client(end) for _ in range(_CLIENTS)]
            resident = self._call_resident(end, self.outcomes.seconds["resident"])
            await asyncio.gather(
                *clients,
                resident,
                self._every(_KILL_SECONDS, end, self._kill),
                self._every(_RELOAD_SECONDS, end, self._change),
                self._every(1.0, end, self._look),
            )
        await self._grpc.close()

    # -- calls --------------------------------------------------------------------------------

    async def _client(self, end: float) -> None:
        while time.monotonic() < end:
            await self._one()

    def _chosen(self) -> str:
        names = self._models.callable
        if self._chance.random() < 0.5:
            return self._chance.choices(names, self._weights)[0]
        self._next += 1
        return names[self._next % len(names)]

    async def _one(self) -> None:
        name, begun = self._chosen(), time.monotonic()
        x = float(self._chance.randrange(1000))
        try:
            async with asyncio.timeout(_PATIENCE):
                if name == self._models.language:
                    right = await self._complete(name)
                else:
                    ways = (self._over_grpc, self._over_http)
                    found = await self._chance.choice(ways)(name, x)
                    right = found == self._models.expected(name, x)
        except (CallError, aiohttp.ClientError, TimeoutError) as error:
            self._failed(name, begun, error)
            return
        self.outcomes.counts["right" if right else "wrong"] += 1
        self.outcomes.seconds["call"].append(time.monotonic() - begun)

    async def _over_grpc(self, name: str, x: float) -> float:
        request = message(name, {"X": np.array([x], np.float32)})
        return float(output(await self._grpc.call("ModelInfer", request), "Y")[0])

    async def _over_http(self, name: str, x: float) -> float:
        tensor = {"name": "X", "shape": [1], "datatype": "FP32", "data": [x]}
        answer = await self._post(f"/v2/models/{name}/infer", {"inputs": [tensor]})
        return float(answer["outputs"][0]["data"][0])

    async def _complete(self, name: str) -> bool:
        body = {"model": name, "prompt": "One day", "max_tokens": 8, "temperature": 0}
        answer = await self._post("/v1/completions", body)
        return bool(answer["choices"][0]["text"])

    async def _post(
        self, path: str, body: Mapping[str, object]
    ) -> dict[str, list[dict[str, list[float]]]]:
        async with self._session.post(self._http + path, json=body) as answer:
            if answer.status != 200:
                raise CallError(str(answer.status), await answer.text())
            found: dict[str, Any] = await answer.json()
            return found

    async def _call_resident(self, end: float, seconds: list[float]) -> None:
        """Call the model that is always loaded, twenty times a second."""
        while time.monotonic() < end:
            begun = time.monotonic()
            right = await self._over_grpc(self._models.pinned, 1.0) == 2.0
            self.outcomes.counts["right" if right else "wrong"] += 1
            seconds.append(time.monotonic() - begun)
            await asyncio.sleep(0.05)

    def _failed(self, name: str, begun: float, error: Exception) -> None:
        """Count a call that failed, and note of which trouble it is."""
        text, now = str(error), time.monotonic()
        met = {
            one: self._troubles[one] for one in self._models.touched(name) if one in self._troubles
        }
        if isinstance(error, TimeoutError):
            kind = "lost"
        elif "was not loaded within" in text:
            kind = "late"
        elif "killed by signal" in text or any(at + _GRACE > begun for at, _ in met.values()):
            kind = "of trouble"
        elif "finds no room" in text and name in self._models.callers:
            kind = "refused caller"
        else:
            kind = "unexpected"
        self.outcomes.counts[kind] += 1
        self.outcomes.errors[text[:60]] += 1
        before = [f"{one} {what} {now - at:.1f} s before" for one, (at, what) in met.items()]
        self.outcomes.failed.append(
            f"{kind}: {name} after {now - begun:.1f} s, {', '.join(before) or 'no trouble'}:"
            f" {text[:200]}"
        )

    # -- trouble ------------------------------------------------------------------------------

    async def _every(
        self, seconds: float, end: float, action: Callable[[], Awaitable[None]]
    ) -> None:
        while (now := time.monotonic()) < end:
            with suppress(aiohttp.ClientError, TimeoutError):
                await action()
            await asyncio.sleep(max(0.0, min(seconds - (time.monotonic() - now), end - now)))

    async def _page(self) -> str:
        url = f"http://127.0.0.1:{self._server.metrics_port}/metrics"
        async with self._session.get(url) as answer:
            return await answer.text()

    async def _kill(self) -> None:
        """Kill a process of a model, but not of the one that is measured."""
        found = [(name, int(float(pid))) for name, pid in _PID.findall(await self._page())]
        found = [one for one in found if one[0] != self._models.pinned]
        if not found:
            return
        name, pid = self._chance.choice(found)
        self._troubles[name] = time.monotonic(), "killed"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.outcomes.kills += 1

    async def _change(self) -> None:
        """Change the file of a model and load it anew, or unload one."""
        name = self._chance.choice(self._models.plain)
        if self._chance.random() < 0.5:
            self._models.touch(name)
            with suppress(CallError):  # no room in time, or the load was cancelled
                await self._grpc.call(
                    "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=name)
                )
                self.outcomes.reloads += 1
            return
        self._troubles[name] = time.monotonic(), "unloaded"
        with suppress(CallError):
            await self._grpc.call(
                "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=name)
            )
            self.outcomes.unloads += 1

    async def _look(self) -> None:
        """Note what models have of the budget, and what their processes really take."""
        page, outcomes = await self._page(), self.outcomes
        counted = sum(map(float, _HELD.findall(page)))
        outcomes.most_counted = max(outcomes.most_counted, counted)
        family = with_descendants(self._server.process.pid) - {self._server.process.pid}
        measured = await asyncio.to_thread(proportional_bytes, family)
        outcomes.most_measured = max(outcomes.most_measured, float(measured or 0))

    async def shares(self) -> tuple[float, int]:
        """The share of time that went into loading, and the number of loads."""
        async with aiohttp.ClientSession() as self._session:
            page = await self._page()
        times = Counter[str]()
        for kind, seconds in _TIMES.findall(page):
            times[kind] += float(seconds)  # type: ignore[assignment]
        whole = times["loading"] + times["resident"]
        return times["loading"] / max(whole, 1), int(sum(map(float, _LOADS.findall(page))))


def _percentile(seconds: list[float], share: float) -> float:
    """Milliseconds."""
    return 1000 * sorted(seconds)[int(share * (len(seconds) - 1))] if seconds else 0.0


def _table(load: Load, budget: int, share: float, loads: int) -> str:
    found = load.outcomes
    alone, beside = (_percentile(one, 0.99) for one in (found.alone, found.seconds["resident"]))
    rows = {
        "answers, all right": found.counts["right"],
        "wrong": found.counts["wrong"],
        "lost": found.counts["lost"],
        "failed of a kill or an unload": found.counts["of trouble"],
        f"refused, as not loaded within {_LOAD_SECONDS} s": found.counts["late"],
        "callers refused, as they hold the room": found.counts["refused caller"],
        "failed without a cause": found.counts["unexpected"],
        "kills, reloads, unloads": f"{found.kills}, {found.reloads}, {found.unloads}",
        "loads": loads,
        "share of time that went into loading": f"{share:.1%}",
        "call that may load, p50 and p99": f"{_percentile(found.seconds['call'], 0.5):.0f} ms,"
        f" {_percentile(found.seconds['call'], 0.99):.0f} ms",
        "resident model's p99, alone and beside": f"{alone:.1f} ms, {beside:.1f} ms",
        "budget": f"{budget / _MIB:.0f} MiB",
        "most counted, most measured": f"{found.most_counted / _MIB:.0f} MiB,"
        f" {found.most_measured / _MIB:.0f} MiB",
    }
    return "\n".join(
        ["| what | figure |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())]
    )


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        models = ResidencyModels(folder / "models")
        budget = options.budget * _MIB
        server = stack.enter_context(
            running(
                models.path,
                folder,
                [
                    *(sys.executable, "-m", "penstock", "serve"),
                    f"--memory-budget={budget}",
                    f"--measured-sizes={folder / 'sizes.json'}",
                    f"--demand-load-timeout-secs={_LOAD_SECONDS}",
                ],
                ["--model-control-mode=demand"],
            )
        )
        load = Load(server, models, options.seed)
        uvloop.run(load.run(options.minutes))
        share, loads = uvloop.run(load.shares())
        server.stop()
    print(_table(load, budget, share, loads))
    for text, count in load.outcomes.errors.most_common(12):
        print(f"{count} x {text}", file=sys.stderr)
    print(*load.outcomes.failed, sep="\n", file=sys.stderr)
    counts = load.outcomes.counts
    kinds = ("wrong", "lost", "late", "unexpected")
    wrong = [f"{counts[one]} {one}" for one in kinds if counts[one]]
    if load.outcomes.most_measured > budget:
        wrong.append("models took more than the budget")
    sys.exit("; ".join(wrong) or 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=int, default=640, help="MiB for all models")
    parser.add_argument("--keep", type=Path, help="an empty folder that keeps models and log")
    return parser.parse_args()


if __name__ == "__main__":
    main()
