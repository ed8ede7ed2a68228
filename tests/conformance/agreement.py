"""How far this server answers as the real one did: starts it, asks, and prints a table by file.

python tests/conformance/agreement.py            the table
python tests/conformance/agreement.py -v FILE    also what differs, in these files only
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.differences import known_differences
from conformance.golden import Case, Peer
from conformance.golden_row import row_differences
from harness.recorded import MISSING, answers, write_models
from harness.serving import serving

Agreement = tuple[int, dict[str, str]]
"""How many cases there are, and how those that differ do."""


@dataclass(frozen=True)
class Setup:
    """A server as the recorded one was started, and the files with what it was asked.

    `models` are sets of them; files are asked in their order, and cases as well.
    """

    models: Sequence[str]
    files: Sequence[str]
    arguments: Sequence[str] = ()

    @contextmanager
    def peer(self) -> Iterator[Peer]:
        """The server, running."""
        with tempfile.TemporaryDirectory() as folder:
            repository = Path(folder) / "models"
            for which in self.models:
                write_models(which, repository)
            arguments = [argument.format(folder=folder) for argument in self.arguments]
            with serving(repository, Path(folder) / "log", *arguments) as server:
                yield Peer(server.grpc, server.http, repository)


ALLOWED = (
    "--allow-trace-control=true",
    "--allow-trace-tensors=true",
    "--allow-log-control=true",
)
"""What clients of the recorded server may change without a flag."""

ANSWERS = Setup(
    ("good",),
    (
        # Before anything is inferred, since they show how much was.
        "grpc_metadata",
        "model_configs",
        "http_routes",
        "grpc_infer_ok",
        "grpc_infer_errors",
        "grpc_streams",
        "http_infer_ok",
        "http_infer_errors",
        "http_generate",
    ),
    ("--cache-config=local,size=1048576",),
)
FAILED = Setup(
    ("bad",), ("index_after_failed_loads", "model_not_ready"), ("--exit-on-error=false",)
)
LOADS = Setup(
    ("bad", "hang"), ("load_errors", "load_errors_http"), ("--model-control-mode=explicit",)
)
CONTROL = Setup(
    ("good", "bad", "hang"),
    ("model_control",),
    ("--model-control-mode=explicit", "--allow-model-upload=true"),
)
TRACE = Setup(
    ("good",),
    ("trace_and_logging",),
    (
        "--trace-config=triton,file={folder}/trace.json",
        "--model-control-mode=explicit",
        "--load-model=simple",  # the only one that it is about
        *ALLOWED,
    ),
)
SETUPS = (ANSWERS, FAILED, LOADS, CONTROL, TRACE)

KNOWN: Mapping[str, Mapping[str, str]] = known_differences()
"""What differs, by file and case, and why it may."""

_ROWS = ("model_control", "trace_and_logging")
"""Files whose cases depend on those before them."""

_SEQUENCE_END = "sequence end"
"""The last request of a sequence, of which only that was recorded; the one before held a 5."""

_ELSEWHERE = {
    "index after slow unloaded": "a moment that is over sooner here",
    "index after all": "has a test of its own, model by model",
    "index after loading filename_missing": "the real server hung in between",
}


def cases(file: str, peer: Peer) -> list[Case]:
    """What is to be asked of a server about one file."""
    text = json.dumps(answers(f"{file}.json")).replace("$BAD_REPO", str(peer.repository))
    text = text.replace("$WORK/gr", str(peer.repository.parent))
    found = [Case(file, name, case) for name, case in json.loads(text).items()]
    return [case for case in found if case.name not in _ELSEWHERE and not _hung(case)]


def agreement(file: str, peer: Peer) -> Agreement:
    """Ask what is in one file."""
    asked = cases(file, peer)
    if file in _ROWS:
        return len(asked), dict(row_differences(peer, asked))
    differing: dict[str, str] = {}
    if file == "load_errors":
        _load_others(asked, peer)
    for case in asked:
        if case.name == _SEQUENCE_END:
            peer.difference(_beginning(case))
        if (found := peer.difference(case)) is not None:
            differing[case.name] = found
    return len(asked), differing


def _load_others(asked: Sequence[Case], peer: Peer) -> None:
    """Load what has no case of its own, since that answered like another."""
    loads = {case.name.removeprefix("load ") for case in asked}
    for model in sorted({path.name for path in peer.repository.iterdir()} - loads):
        request = {"rpc": "RepositoryModelLoad", "request": {"model_name": model}, "code": "OK"}
        peer.difference(Case("", model, request))


def _hung(case: Case) -> bool:
    """Whether the real server never ended a load, which is no answer to be had."""
    recorded = case.recorded
    return recorded.get("rpc") == "RepositoryModelLoad" and recorded["code"] == "DEADLINE_EXCEEDED"


def _beginning(case: Case) -> Case:
    text = json.dumps(case.recorded).replace("sequence_end", "sequence_start")
    return Case(case.file, "sequence start", json.loads(text.replace("[6]", "[5]")))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare this server with the recorded one.")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what differs")
    parser.add_argument("files", nargs="*", help="only these, without .json")
    chosen = parser.parse_args()
    if MISSING:
        parser.exit(2, f"There is nothing to compare with: {MISSING}\n")
    total = same = 0
    print(f"{'file':28} agree   of")
    for setup in SETUPS:
        files = [file for file in setup.files if not chosen.files or file in chosen.files]
        if not files:
            continue
        with setup.peer() as peer:
            for file in files:
                count, differing = agreement(file, peer)
                total, same = total + count, same + count - len(differing)
                print(f"{file:28} {count - len(differing):5} {count:4}", flush=True)
                for name, text in differing.items():
                    told = text[:1500] if chosen.verbose else KNOWN.get(file, {}).get(name, "?")
                    print(f"  {name}: {told}")
    print(f"{'all':28} {same:5} {total:4}")


if __name__ == "__main__":
    main()
