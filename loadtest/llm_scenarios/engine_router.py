"""A real router of engines before three Penstocks: OpenAI's client asks it, one server is killed,
half of the clients leave, and prompts that begin alike come back.

    python -m loadtest.llm_scenarios.engine_router --smg FOLDER/bin/smg

`make router` installs the router (`pip install smg`) and runs this. With `--vllm PYTHON` the
servers' engine is vLLM, whose KV events the router follows: prompts that another client has sent to
one of the servers, past the router, show whether it goes by them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from loadtest.process import Server, free_ports, penstock
from loadtest.report import Row, show
from penstock.demo.language_model import add_checkpoint, add_gguf
from penstock.demo.repository import TEMPLATES

MODEL = "tiny_llm"
_STREAMS = 8
_TOKENS = 24
_ANSWERED = "nv_inference_request_success"
_PREFIXES, _TIMES = 11, 5
_PAST = 24
"""Prompts that are sent past the router."""
_EVENTS_SECONDS = 2.0
_VLLM = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""Several engines on one machine: vLLM would bind the threads of all to the same core, where each
waits for another that spins, and none starts."""


@dataclass
class Tally:
    """What a load has seen."""

    calls: int = 0
    tokens: int = 0
    failures: list[tuple[float, str]] = field(default_factory=list)
    """When, in seconds since the beginning, and why."""
    ends: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def longest_pause(self) -> float:
        """Seconds between two calls that ended well, at most."""
        return max((b - a for a, b in zip(self.ends, self.ends[1:], strict=False)), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smg", required=True, help="the router's program")
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a load")
    parser.add_argument("--vllm", default="", help="the Python of vLLM, in place of OpenVINO GenAI")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows = _measured(Path(temporary), options)
    show("a router of engines before Penstocks", rows, options.json)


def _measured(folder: Path, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers = [
            stack.enter_context(_worker(folder / f"worker-{n}", options.vllm))
            for n in range(options.workers)
        ]
        for policy in ("round_robin", "cache_aware"):
            with _smg(options.smg, servers, policy, folder) as port:
                rows.append(_prefixes(policy, port, servers))
                rows.append(_past(policy, port, servers))
                if policy == "cache_aware":
                    rows += asyncio.run(_loads(port, servers, options.seconds))
    return rows


# -- programs -------------------------------------------------------------------------------------


@contextmanager
def _worker(repository: Path, vllm: str) -> Iterator[Server]:
    engine = "vllm" if vllm else "openvino_genai"
    version = repository / MODEL / "1"
    shutil.copytree(TEMPLATES / f"{MODEL}-{engine}", version.parent)
    arguments = ["--engine-rpc=vllm", "--metrics-config=llm,vllm_names=true"]
    if vllm:
        add_checkpoint(version)
        (port,) = free_ports(1)
        settings = json.loads((version / "model.json").read_text())
        events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}
        few = {"gpu_memory_utilization": 0.05, "block_size": 32, "kv_events_config": events}
        os.environ.update(_VLLM)
        (version / "model.json").write_text(json.dumps({**settings, **few}))
        arguments.append(f"--backend-config=vllm,python={vllm}")
    else:
        add_gguf(version)
    with penstock(repository, *arguments, timeout=900.0) as server:
        yield server


@contextmanager
def _smg(program: str, servers: Sequence[Server], policy: str, folder: Path) -> Iterator[int]:
    """The router, once it answers for the model; its port."""
    port, metrics = free_ports(2)
    urls = [f"grpc://{server.target}" for server in servers]
    command = [program, "launch", "--worker-urls", *urls, "--policy", policy]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    log = folder / f"smg-{policy}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_for_model(process, port, log)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        told = Counter(re.findall(r"KV event stream connected|Learned block_size", log.read_text()))
        print(f"{policy}: what the router's log says of KV events: {dict(told)}")


def _wait_for_model(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-", max_retries=0)
    end = time.monotonic() + 120
    why = ""
    while time.monotonic() < end and process.poll() is None:
        try:
            client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=1
            )
            return
        except openai.OpenAIError as error:
            why = str(error)
            time.sleep(0.5)
    raise SystemExit(f"the router does not answer: {why}\n{log.read_text()[-4000:]}")


# -- loads ----------------------------------------------------------------------------------------


async def _loads(port: int, servers: Sequence[Server], seconds: float) -> list[Row]:
    client = openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="-", max_retries=0, timeout=60
    )
    direct = openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{servers[0].http_port}/v1", api_key="-", max_retries=0
    )
    rows = [
        _row("one server, without the router", await _load(direct, seconds), seconds),
        _row("all servers", await _load(client, seconds), seconds),
        _row("half of the clients leave", await _load(client, seconds, leave=True), seconds),
    ]
    left = await _settled(servers)
    print(f"in flight after clients have left: {left}")
    killing = asyncio.get_running_loop().call_later(
        seconds / 3, os.kill, servers[-1].pid, signal.SIGKILL
    )
    tally = await _load(client, seconds)
    killing.cancel()
    for when, why in tally.failures:
        print(f"failed at {when:.2f} s: {why[:200]}")
    rows.append(_row("one server killed", tally, seconds))
    return rows


def _row(what: str, tally: Tally, seconds: float) -> Row:
    waits = sorted(tally.first) or [0.0]
    times = [when for when, _ in tally.failures]
    return {
        "what": what,
        "calls": float(tally.calls),
        "failed": float(len(tally.failures)),
        "failing s": max(times) - min(times) if times else 0.0,
        "longest pause s": tally.longest_pause(),
        "tokens/s": tally.tokens / seconds,
        "first token p50 ms": 1e3 * waits[len(waits) // 2],
        "p99 ms": 1e3 * waits[int(len(waits) * 0.99)],
    }


async def _load(client: Any, seconds: float, *, leave: bool = False) -> Tally:
    """Streams of chats side by side, for so long; every second one may `leave` half-way."""
    tally, begun = Tally(), time.monotonic()

    async def ask(number: int) -> None:
        turn = 0
        while time.monotonic() - begun < seconds:
            turn += 1
            try:
                await _chat(client, f"{number} {turn}", tally, leave=leave and turn % 2 == 0)
            except openai.OpenAIError as error:
                tally.failures.append((time.monotonic() - begun, str(error)))
            else:
                tally.ends.append(time.monotonic() - begun)

    await asyncio.gather(*[ask(number) for number in range(_STREAMS)])
    tally.ends.sort()
    return tally


async def _chat(client: Any, text: str, tally: Tally, *, leave: bool) -> None:
    asked = time.monotonic()
    tally.calls += 1
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"tell me about {text}"}],
        max_tokens=_TOKENS,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    first = True
    async with stream:
        async for part in stream:
            if part.choices and part.choices[0].delta.content:
                if first:
                    tally.first.append(time.monotonic() - asked)
                first = False
                tally.tokens += 1
                if leave:
                    return


async def _settled(servers: Sequence[Server]) -> dict[int, float]:
    """What is in flight on each server once nothing changes for a second, at most 20 s later."""
    end = time.monotonic() + 20
    while True:
        found = {one.pid: _metric(one, "penstock_in_flight_requests") for one in servers}
        if not any(found.values()) or time.monotonic() > end:
            return found
        await asyncio.sleep(0.2)


def _metric(server: Server, name: str) -> float:
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        page = answer.read().decode()
    return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (.*)$", page, re.M)))


def _prefixes(policy: str, port: int, servers: Sequence[Server]) -> Row:
    """Prompts that begin alike, some of them in turn: how many went where their first went."""
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-", max_retries=0)
    first: dict[int, int] = {}
    there, used = 0, Counter[int]()
    for turn in range(_TIMES):
        for prefix in range(_PREFIXES):
            words = f"{policy} story {prefix} of the river and the mill " * 10
            where = _asked(client, f"{words} {turn}", servers)
            used[where] += 1
            there += where == first.setdefault(prefix, where) and turn > 0
    share = 100.0 * there / (_PREFIXES * (_TIMES - 1))
    print(f"{policy}: {share:.0f} % of prompts went where their prefix had gone; calls {used}")
    return {
        **_row(f"prefixes, {policy}", Tally(calls=_PREFIXES * _TIMES), 1.0),
        "what": f"{policy}: {share:.0f} % where their prefix was",
    }


def _asked(client: openai.OpenAI, prompt: str, servers: Sequence[Server]) -> int:
    """The place of the server that a prompt went to."""
    before = [_metric(one, _ANSWERED) for one in servers]
    client.completions.create(model=MODEL, prompt=prompt, max_tokens=4)
    after = [_metric(one, _ANSWERED) for one in servers]
    return max(range(len(servers)), key=lambda at: after[at] - before[at])


def _past(policy: str, port: int, servers: Sequence[Server]) -> Row:
    """Prompts that servers have had from others: how many go where their beginning is cached.

    The router knows of them by nothing but events.
    """
    url = "http://127.0.0.1:{}/v1"
    router = openai.OpenAI(base_url=url.format(port), api_key="-", max_retries=0)
    others = [
        openai.OpenAI(base_url=url.format(one.http_port), api_key="-", max_retries=0)
        for one in servers
    ]
    words = [f"{policy} tale {n} of the river and the mill " * 20 for n in range(_PAST)]
    owners = [n * 7 % 5 % len(servers) for n in range(_PAST)]
    for text, owner in zip(words, owners, strict=True):
        others[owner].completions.create(model=MODEL, prompt=text, max_tokens=4)
    time.sleep(_EVENTS_SECONDS)
    found = [_asked(router, f"{text} and then", servers) for text in words]
    there = sum(a == b for a, b in zip(owners, found, strict=True))
    chance = sum(owners.count(at) * found.count(at) for at in set(owners)) / _PAST
    print(
        f"{policy}: {there} of {_PAST} prompts went where others had sent them ({chance:.1f} by"
        f" chance); calls {Counter(found)}"
    )
    return {
        **_row("", Tally(calls=_PAST), 1.0),
        "what": f"{policy}: {there} of {_PAST} where others had been",
    }


if __name__ == "__main__":
    main()
