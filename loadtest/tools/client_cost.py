"""What load tools themselves cost: CPU time of the tool for each request, beside each other.

python -m loadtest.tools.client_cost [--seconds 5] [--rounds 3] [LOAD ...]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, show
from loadtest.tools.analyzer_files import write_inputs, write_models
from loadtest.tools.outcome import server_counts
from loadtest.tools.programs import MORE_SECONDS, ToolError, program, run_program
from penstock.demo import write_demo

_PROMPT, _TOKENS = "Water", 16


@dataclass(frozen=True, slots=True)
class Kind:
    """A load of so many requests at a time, as arguments of each tool; places are in braces."""

    slots: int
    perf: str
    analyzer: str


_GRPC, _HTTP, _OPENAI = "-i grpc -u {grpc}", "-i http -u {http}", "-i openai -u {http}"
_DATA = "--input-data={folder}/data.json"
_KINDS: Mapping[str, Kind] = {
    **{
        f"gRPC, unary, {slots} at a time": Kind(
            slots, f"-m identity {_GRPC} {_DATA}", f"-m identity {_GRPC} --async {_DATA}"
        )
        for slots in (1, 8)
    },
    "gRPC, streams of 3 responses, 4 at a time": Kind(
        4,
        f"-m repeat {_GRPC} --input-data={{folder}}/repeat.json",
        f"-m repeat {_GRPC} --async --streaming --input-data={{folder}}/repeat.json",
    ),
    **{
        f"HTTP, {slots} at a time": Kind(
            slots, f"-m identity {_HTTP} {_DATA}", f"-m identity {_HTTP} --async {_DATA}"
        )
        for slots in (1, 8)
    },
    "OpenAI's embeddings, 4 at a time": Kind(
        4,
        f"-m embedder {_OPENAI} --endpoint embeddings --prompt {_PROMPT}",
        f"-m embedder --service-kind=openai --endpoint=v1/embeddings {_HTTP} --async"
        " --input-data={folder}/openai.json",
    ),
    "OpenAI's chats, streams of 16 tokens, 4 at a time": Kind(
        4,
        f"-m tiny_llm {_OPENAI} --endpoint chat --streaming --prompt {_PROMPT}"
        f" --output-tokens {_TOKENS}",
        f"-m tiny_llm --service-kind=openai --endpoint=v1/chat/completions {_HTTP} --async"
        " --input-data={folder}/chat.json",
    ),
}


def main() -> None:
    """Run each tool for each kind of load, and print microseconds of CPU a request."""
    parser = arguments(__doc__)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"of: {'; '.join(_KINDS)}")
    chosen = parser.parse_args()
    if unknown := set(chosen.loads) - set(_KINDS):
        parser.error(f"there is no load '{sorted(unknown)[0]}'")
    rows: list[Row] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write_files(folder)
        with penstock(folder / "models") as server:
            for name in chosen.loads or _KINDS:
                try:
                    rows.append(_row(name, server, folder, chosen.seconds, chosen.rounds))
                except ToolError as error:
                    faults.append(f"{name}: {error}")
    if rows:
        show("CPU of the tool, µs a request", rows, chosen.json)
    sys.exit("\n".join(faults) or 0)


def _write_files(folder: Path) -> None:
    """Models, the demo's language model among them, and inputs."""
    write_demo(folder / "demo", report=lambda line: None)
    shutil.move(folder / "demo" / "tiny_llm", write_models(folder / "models") / "tiny_llm")
    write_inputs(folder)
    messages = [{"role": "user", "content": _PROMPT}]
    body = {"model": "tiny_llm", "messages": messages, "max_tokens": _TOKENS, "stream": True}
    (folder / "chat.json").write_text(json.dumps({"data": [{"payload": [body]}]}))


def _row(name: str, server: Server, folder: Path, seconds: float, rounds: int) -> Row:
    """Medians of both tools; raises `ToolError`."""
    kind = _KINDS[name]
    row: dict[str, float | str] = {"load": name}
    for tool, make in {"penstock perf": _perf, "perf_analyzer": _analyzer}.items():
        found = []
        for _ in range(rounds):
            # Of a longer and a shorter run, so that what starting costs is in neither.
            used, made = _cost(make(kind, server, folder, seconds), server)
            less, fewer = _cost(make(kind, server, folder, seconds / 4), server)
            if made <= fewer:
                raise ToolError(f"{tool}: {made} requests in {seconds:g} s, {fewer} in a quarter")
            found.append((used - less) / (made - fewer) * 1e6)
        row[tool] = statistics.median(found)
    row["ratio"] = float(row["penstock perf"]) / float(row["perf_analyzer"])
    return row


def _words(text: str, server: Server, folder: Path) -> list[str]:
    http = f"127.0.0.1:{server.http_port}"
    return [each.format(grpc=server.target, http=http, folder=folder) for each in text.split()]


def _perf(kind: Kind, server: Server, folder: Path, length: float) -> Sequence[str]:
    words = _words(kind.perf, server, folder)
    timed = ["-c", str(kind.slots), "-d", str(length), "--warmup", "0"]
    return [sys.executable, "-m", "penstock", "perf", *words, *timed]


def _analyzer(kind: Kind, server: Server, folder: Path, length: float) -> Sequence[str]:
    words = _words(kind.analyzer, server, folder)
    timed = [f"--concurrency-range={kind.slots}", "--max-trials=3", "--stability-percentage=99999"]
    timed.append(f"--measurement-interval={length / 3 * 1e3:.0f}")
    return [program("perf_analyzer"), *words, *timed]


def _cost(command: Sequence[str], server: Server) -> tuple[float, int]:
    """CPU seconds of a command with its processes, and how many requests the server counted."""
    http = f"127.0.0.1:{server.http_port}"
    libraries = {"LD_LIBRARY_PATH": str(Path(program("perf_analyzer")).resolve().parent / "lib")}
    before, requests = os.times(), server_counts(http).success
    done = run_program(command, MORE_SECONDS, libraries)
    if done.status:
        raise ToolError(f"{command[0]} ended with status {done.status}: {done.printed[-500:]}")
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return used, server_counts(http).success - requests


if __name__ == "__main__":
    main()
