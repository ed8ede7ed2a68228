"""Requests to a language model that nobody waits for: when its engine hears of it, what it wastes.

    python -m loadtest.llm_scenarios.llm_cancels [--cancels 10000]
    python -m loadtest.llm_scenarios.llm_cancels --engine vllm --python .venv-vllm/bin/python

Clients leave the demo's model by cancelling a gRPC call, closing a stream of events, cutting their
connection, or by a deadline, at random moments. Every request is traced: its phase is that of its
engine's marks when the client left, `heard` the time from there until the server ended it, `abort`
until the engine did; `wasted` are the tokens that the engine made meanwhile. A step is the time
between two tokens of a request; an abort may take one, as long as those are at p99, and 10 ms.
Eight requests run at a time, in steps of 128 tokens, the others wait. vLLM tells when it began with
a prompt together with the first token, so `waiting` has those in their prompt too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from loadtest.kept_spans import KeptSpan, read_spans
from loadtest.llm_leavers import AT_A_TOKEN, TRACE_BASE, WIRES, Left
from loadtest.places import results_file
from loadtest.process import Server, collecting, penstock
from loadtest.report import Row, show
from loadtest.stream_tally import percentile
from penstock.demo import write_demo

_MODEL = "tiny_llm"
_SETTINGS = {"max_num_seqs": 8, "max_num_batched_tokens": 128, "enable_prefix_caching": False}
_ALLOWED_MS = 10.0  # on top of a step
_ALLOWED_TOKENS = 2
_HELD = ("running_requests", "waiting_requests", "kv_cache_usage")
_PHASES = ("waiting", "prefill", "decode", AT_A_TOKEN)
_BEFORE, _OVER, _UNKNOWN = "before the engine", "over before", "no trace"


class Abort(NamedTuple):
    """One request: the phase in which its client left, and what was done then, in milliseconds."""

    wire: str
    phase: str
    heard: float = 0.0
    milliseconds: float = 0.0
    wasted: int | None = None


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models, spans = folder / "models", folder / "spans.bin"
        spans.touch()
        _write_model(models, options.engine)
        with collecting(spans) as port, penstock(models, *_arguments(port, options)) as server:
            _leave(server, 40, options.in_flight, seed=1)
            _at_rest(server)
            before, start = _metrics(server), time.time_ns()
            left = _leave(server, options.cancels, options.in_flight, options.seed)
            seconds = (time.time_ns() - start) / 1e9
            after = _at_rest(server)
        aborts = [*_aborts(left, _requests(spans, start))]
    if options.engine == "vllm":  # which tells only of all requests together
        aborts = [abort._replace(wasted=None) for abort in aborts]
    sys.exit(_report(aborts, before, after, seconds, options))


def _report(
    aborts: list[Abort],
    before: Mapping[str, float],
    after: Mapping[str, float],
    seconds: float,
    options: argparse.Namespace,
) -> str | int:
    """Print what was found; what is not as it should be, 0 for nothing."""
    rows = [*_rows(aborts)]
    title = f"{len(aborts)} requests left in {seconds:.0f} s, {options.engine}"
    show(title, rows, options.json)
    for phase in (_BEFORE, _OVER, _UNKNOWN):
        print(f"{sum(abort.phase == phase for abort in aborts):7d}  {phase}")
    made = {name: after[name] - before.get(name, 0.0) for name in after}
    count = made["inter_token_seconds_count"]
    step, longest = made["inter_token_seconds_sum"] / count * 1e3, _longest_step(made)
    cancelled, wasted = made["cancelled_requests_total"], made["wasted_tokens_total"]
    mean = wasted / max(cancelled, 1)
    print(f"a step takes {step:.2f} ms, {longest:.0f} at p99 at most")
    print(f"cancelled in the engine {cancelled:.0f}, wasted {wasted:.0f} tokens, {mean:.2f} each")
    print("the engine holds " + ", ".join(f"{name} {after[name]:g}" for name in _HELD))
    return "; ".join(_complaints(aborts, after, longest, mean)) or 0


def _complaints(
    aborts: Iterable[Abort], after: Mapping[str, float], step: float, mean: float
) -> Iterator[str]:
    told = [abort for abort in aborts if abort.phase in _PHASES]
    late = percentile([abort.milliseconds for abort in told], 0.99)
    if late > step + _ALLOWED_MS:
        yield f"an abort takes {late:.1f} ms at p99, a step {step:.1f}"
    wasted = [abort.wasted for abort in told if abort.wasted is not None]
    if (percentile(wasted, 0.5) if wasted else mean) > _ALLOWED_TOKENS:
        yield "too many tokens are wasted"
    if held := [name for name in _HELD if after[name]]:
        yield f"the engine still holds something: {held}"


def _longest_step(made: Mapping[str, float]) -> float:
    """The bound of the histogram's bucket that has 99 of 100 times between tokens, in ms."""
    prefix, most = "inter_token_seconds_bucket", made["inter_token_seconds_count"] * 0.99
    bounds = (float(name.removeprefix(prefix)) for name in made if name.startswith(prefix))
    below = {bound: made[f"{prefix}{bound:g}"] for bound in bounds if bound != float("inf")}
    return min((bound for bound in below if below[bound] >= most), default=float("inf")) * 1e3


def _rows(aborts: Iterable[Abort]) -> Iterator[Row]:
    groups: dict[tuple[str, str], list[Abort]] = defaultdict(list)
    for abort in aborts:
        if abort.phase in _PHASES:
            groups[abort.wire, abort.phase].append(abort)
            groups["all", "all"].append(abort)
    order = [*((wire, phase) for wire in WIRES for phase in _PHASES), ("all", "all")]
    for wire, phase in order:
        if group := groups.get((wire, phase)):
            times = [abort.milliseconds for abort in group]
            wasted = [abort.wasted for abort in group if abort.wasted is not None]
            yield {
                "left by": wire,
                "phase": phase,
                "requests": str(len(group)),
                "heard p50 ms": percentile([abort.heard for abort in group], 0.5),
                "p99": percentile([abort.heard for abort in group], 0.99),
                "abort p50": percentile(times, 0.5),
                "abort p99": percentile(times, 0.99),
                "max": max(times),
                "wasted median": str(percentile(wasted, 0.5)) if wasted else "-",
                "wasted p99": str(percentile(wasted, 0.99)) if wasted else "-",
            }


# -- the trace of each request ---------------------------------------------------------------------


def _requests(spans: Path, start: int) -> dict[int, KeptSpan]:
    """The span of each request by its number."""
    found = (span for span in read_spans(spans) if span.name == _MODEL and span.end >= start)
    return {span.trace_id ^ TRACE_BASE: span for span in found}


def _aborts(left: Iterable[Left], spans: Mapping[int, KeptSpan]) -> Iterator[Abort]:
    for each in left:
        span = spans.get(each.number)
        yield Abort(each.wire, _UNKNOWN) if span is None else _abort(each, span)


def _abort(left: Left, span: KeptSpan) -> Abort:
    marks, facts = span.events, span.attributes
    if "ENGINE_QUEUED" not in marks or left.at < marks["ENGINE_QUEUED"]:
        return Abort(left.wire, _BEFORE)
    if left.ended or "gen_ai.response.finish_reasons" in facts:
        return Abort(left.wire, _OVER)
    phase = "waiting"
    if left.at >= marks.get("PREFILL_START", left.at + 1):
        phase = "prefill"
    if left.at >= marks.get("FIRST_TOKEN", left.at + 1):
        phase = AT_A_TOKEN if left.moment == AT_A_TOKEN else "decode"
    end = marks.get("DECODE_END")
    if end is None:
        return Abort(left.wire, _UNKNOWN)
    heard, whole = ((at - left.at) / 1e6 for at in (span.end, end))
    return Abort(left.wire, phase, heard, whole, facts.get("penstock.llm.wasted_tokens"))


# -- the server and its clients --------------------------------------------------------------------


def _write_model(models: Path, engine: str) -> None:
    write_demo(models, llm=engine, report=lambda _: None)
    for other in models.iterdir():
        if other.is_dir() and other.name != _MODEL:
            shutil.rmtree(other)
    file = models / _MODEL / "1" / "model.json"
    settings = json.loads(file.read_text()) | _SETTINGS
    if engine == "openvino_genai":
        # Two threads wait for each other: where another process takes a core, for a tenth of a
        # second, which would say nothing of the abort.
        settings["properties"]["INFERENCE_NUM_THREADS"] = 1
    file.write_text(json.dumps(settings))


def _arguments(port: int, options: argparse.Namespace) -> list[str]:
    settings = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=0"]
    settings += [f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"]
    settings += ["opentelemetry,bsp_max_queue_size=65536", "opentelemetry,bsp_schedule_delay=200"]
    arguments = [f"--trace-config={setting}" for setting in settings]
    if options.engine == "vllm":
        arguments.append(f"--backend-config=vllm,python={options.python}")
    return arguments


def _leave(server: Server, count: int, in_flight: int, seed: int) -> list[Left]:
    http = f"127.0.0.1:{server.http_port}"
    command = [sys.executable, "-m", "loadtest.llm_leavers", server.target, http, _MODEL]
    command += [str(count), str(in_flight), str(seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return [Left(**json.loads(line)) for line in done.stdout.splitlines()]


def _at_rest(server: Server) -> dict[str, float]:
    """The engine's metrics when it holds nothing any more, or after ten seconds."""
    end = time.monotonic() + 10
    time.sleep(2)  # the page is renewed twice a second, the collector is told a little later
    while any((found := _metrics(server))[name] for name in _HELD) and time.monotonic() < end:
        time.sleep(0.5)
    return found


def _metrics(server: Server) -> dict[str, float]:
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    found: dict[str, float] = defaultdict(float)
    for line in lines:
        if line.startswith("penstock_llm_") and f'model="{_MODEL}"' in line:
            name = line.partition("{")[0].removeprefix("penstock_llm_")
            if name.endswith("_bucket"):
                name += line.partition('le="')[2].partition('"')[0]
            found[name] += float(line.rpartition(" ")[2])
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cancels", type=int, default=10_000)
    parser.add_argument("--engine", choices=("openvino_genai", "vllm"), default="openvino_genai")
    parser.add_argument("--python", default=sys.executable, help="vLLM's interpreter")
    parser.add_argument("--in-flight", type=int, default=12)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
