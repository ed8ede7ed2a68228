"""Admission in tokens under overload: a tenant beside a ten times larger one, and twice the load.

    python -m loadtest.llm_scenarios.tenants [--rounds 3] [--calls 60] [--seconds 3]

The demo's language model, in an engine that runs eight requests at once. First: the time to the
first token of a small tenant alone, beside ten times its streams of another tenant, and beside the
same without `--tenants`. Second: the tokens of two tenants that always have requests waiting, and
Jain's index of them: 1 where both got the same, 0.5 where one got all. Third: with
`penstock.max_queued_requests`, the most tokens a second of requests that finish, the same with
calls that come twice as fast as that, the time of a refusal, and the CPU that each process used.
Requests of one length from streams that follow each other run in lock-step: all begin in one step
and end in one. `out of step` are as many streams of requests whose lengths differ, which an engine
serves as it does calls that come whenever they do; `of that` is against these.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from loadtest.engines import PROMPT
from loadtest.llm_repository import model_name, write_llm
from loadtest.llm_requests import grpc_request
from loadtest.process import Server, penstock
from loadtest.random_llms import MODELS
from loadtest.report import Row, arguments, median_rows, show
from loadtest.stream_load import StreamLoad, StreamOutcome, kept_on, run

_FAIRNESS_ID = "x-gateway-inference-fairness-id"
_LLM = MODELS[0]
_PLACES = {"max_num_seqs": 8}
_LIMIT = {"penstock.max_queued_requests": "16"}
_VICTIM, _AGGRESSOR = 2, 20  # streams
_VICTIM_TOKENS, _TOKENS = 32, 64  # of a request
_HUNGRY = ((16, 64, 16, 64), (80, 64, 8, 64), (16, 96, 16, 24))  # streams and tokens, of both
_PEAK = (8, 16)  # streams that are tried
_LENGTHS = (32, 40, 48, 56, 64, 72, 80, 88, 96)
"""Tokens of requests that do not end together: as many on average."""
_TABLES = ("beside", "shares", "twice")
_UNDER_WAY = 1.0  # seconds after which a load in the background is what it stays
_COUNTED = re.compile(
    r'^penstock_llm_tenant_(?:prompt|generated)_tokens_total\{.*tenant="(\w+)".*\} (\S+)$', re.M
)


def main() -> None:
    options = _options().parse_args()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        write_llm(directory / "open", _LLM, "openvino_genai", settings=_PLACES)
        write_llm(
            directory / "limited", _LLM, "openvino_genai", settings=_PLACES, parameters=_LIMIT
        )
        tenants = directory / "tenants.json"
        tenants.write_text(json.dumps({"reserve": options.reserve}))
        flags = f"--tenants={tenants}", "--trust-fairness-id=true"
        fair = stack.enter_context(penstock(directory / "open", *flags))
        unfair = stack.enter_context(penstock(directory / "open"))
        limited = stack.enter_context(penstock(directory / "limited"))
        for server in (fair, unfair, limited):
            run(_load(directory, server, "victim", 8, _VICTIM_TOKENS, rounds=4))
        tables: dict[str, tuple[str, Callable[[], Iterator[Row]]]] = {
            "beside": (
                f"time to first token, {_VICTIM} streams of a tenant, {_AGGRESSOR} of another",
                lambda: _beside(directory, fair, unfair, options.calls),
            ),
            "shares": (
                "two tenants that always have requests waiting",
                lambda: _shares(directory, fair, options),
            ),
            "twice": (
                "calls at twice the rate that the engine bears",
                lambda: _twice(directory, limited, options),
            ),
        }
        found = {name: _rows(options.rounds, tables[name][1]) for name in options.tables}
    for name, rows in found.items():
        show(tables[name][0], rows, _named(options.json, name))


def _rows(rounds: int, measure: Callable[[], Iterator[Row]]) -> list[Row]:
    return median_rows(rounds, lambda: list(measure()))


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, default=60, help="calls of each of a victim's streams")
    parser.add_argument(
        "--reserve", type=float, default=0.125, help="share of the engine's places, of --tenants"
    )
    parser.add_argument("--tables", nargs="+", choices=_TABLES, default=_TABLES)
    return parser


def _beside(directory: Path, fair: Server, unfair: Server, calls: int) -> Iterator[Row]:
    alone = run(_load(directory, fair, "victim", _VICTIM, _VICTIM_TOKENS, rounds=calls))
    yield _first("alone", alone, alone)
    for what, server in (("beside, --tenants", fair), ("beside, without", unfair)):
        with kept_on(_load(directory, server, "aggressor", _AGGRESSOR, _TOKENS)):
            time.sleep(_UNDER_WAY)
            victim = _load(directory, server, "victim", _VICTIM, _VICTIM_TOKENS, rounds=calls)
            yield _first(what, run(victim), alone)


def _first(what: str, found: StreamOutcome, alone: StreamOutcome) -> Row:
    return {
        "victim": what,
        "calls": str(found.calls),
        "first p50 ms": found.first_p50,
        "x alone": found.first_p50 / alone.first_p50,
        "first p99 ms": found.first_p99,
        "p99 x alone": found.first_p99 / alone.first_p99,
        "gap p50 ms": found.gap_p50,
        "tokens/s": found.calls * _VICTIM_TOKENS / found.seconds,
    }


def _shares(directory: Path, server: Server, options: argparse.Namespace) -> Iterator[Row]:
    for number, (streams, tokens, others, other_tokens) in enumerate(_HUNGRY):
        names = f"a{number}", f"b{number}"
        with (
            kept_on(_load(directory, server, names[0], streams, tokens)),
            kept_on(_load(directory, server, names[1], others, other_tokens)),
        ):
            time.sleep(_UNDER_WAY)
            before = _used(server, names)
            time.sleep(options.seconds)
            after = _used(server, names)
        served = [(y - x) / options.seconds for x, y in zip(before, after, strict=True)]
        yield {
            "streams": f"{streams} : {others}",
            "tokens of a request": f"{tokens} : {other_tokens}",
            "a tokens/s": served[0],
            "b tokens/s": served[1],
            "Jain": sum(served) ** 2 / (len(served) * sum(one * one for one in served)),
        }


def _used(server: Server, names: Sequence[str]) -> list[float]:
    """Tokens of tenants so far, of prompts and outputs."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics") as answer:
        counted = _COUNTED.findall(answer.read().decode())
    return [sum(float(count) for name, count in counted if name == one) for one in names]


def _twice(directory: Path, server: Server, options: argparse.Namespace) -> Iterator[Row]:
    def closed(streams: int, lengths: Sequence[int] = (_TOKENS,)) -> StreamOutcome:
        load = _load(directory, server, "any", streams, *lengths, seconds=options.seconds)
        return run(load)

    streams, before = max(
        ((streams, closed(streams)) for streams in _PEAK), key=lambda one: _goodput(one[1])
    )
    uneven_before = closed(streams, _LENGTHS)
    rate = 2 * _goodput(before) / _TOKENS
    overload = _load(directory, server, "any", 4, _TOKENS, seconds=options.seconds, rate=rate)
    twice, after = run(overload), closed(streams)  # a machine that others use is not the same
    uneven_after = closed(streams, _LENGTHS)
    peak = (_goodput(before) + _goodput(after)) / 2
    uneven = (_goodput(uneven_before) + _goodput(uneven_after)) / 2
    for what, found in (
        ("peak", before),
        ("peak, out of step", uneven_before),
        ("twice", twice),
        ("peak again", after),
        ("out of step again", uneven_after),
    ):
        yield _offered(what, found, peak, uneven)


def _goodput(found: StreamOutcome) -> float:
    """Tokens a second of the requests that finished."""
    return (found.calls - found.refused) * _TOKENS / found.seconds


def _offered(what: str, found: StreamOutcome, peak: float, uneven: float) -> Row:
    served = _goodput(found)
    return {
        "load": what,
        "calls/s": found.calls / found.seconds,
        "refused": found.refused / max(found.calls, 1),
        "goodput tokens/s": served,
        "of peak": served / peak,
        "of that": served / uneven,
        "first p50 ms": found.first_p50,
        "first p99 ms": found.first_p99,
        "refusal p50 ms": found.refused_p50,
        "refusal p99 ms": found.refused_p99,
        **{
            f"{name} cores": found.cpu[name] / found.seconds
            for name in ("front", "engine", "client")
        },
        "engine us a token": found.cpu["engine"] / (served * found.seconds) * 1e6,
    }


def _load(
    directory: Path,
    server: Server,
    tenant: str,
    streams: int,
    *tokens: int,
    rounds: int = 0,
    seconds: float = 0.0,
    rate: float = 0.0,
) -> StreamLoad:
    files = []
    for count in tokens:
        sampling = {"max_tokens": count, "temperature": 0, "ignore_eos": True}
        file = directory / f"request-{count}.bin"
        file.write_bytes(grpc_request(model_name(_LLM, ""), PROMPT, sampling).SerializeToString())
        files.append(str(file))
    return StreamLoad(
        server.target,
        "grpc",
        files,
        streams,
        rounds,
        seconds,
        rate=rate,
        watched=server.processes(),
        headers={_FAIRNESS_ID: tenant},
        refusal="the queue of ",
    )


def _named(path: Path | None, table: str) -> Path | None:
    """Where one of the tables goes: each has a file of its own."""
    return None if path is None else path.with_stem(f"{path.stem}-{table}")


if __name__ == "__main__":
    main()
