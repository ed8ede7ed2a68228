"""NVIDIA's genai-perf against the demo's language model, with its own figures.

python tests/programs/install.py genai-perf perf_analyzer
python -m loadtest.tools.genai_perf [--requests 50]
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtest.places import results_file
from loadtest.process import penstock
from loadtest.report import Row, show
from loadtest.tools.programs import ToolError, program, run_program
from loadtest.tools.report import Addresses
from penstock.demo import write_demo

_ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = _ROOT / "service" / "penstock" / "demo" / "assets" / "tiny_llm"
_TIMEOUT = 300.0

_OUTPUT = "perf_analyzer.log"
"""The output of `perf_analyzer`, in the folder of a profile."""

_PERF_ANALYZER = """\
#!/bin/sh
for word; do
    [ "$before" = --profile-export-file ] && export="$word"
    before="$word"
done
: >{output}
for run in 1 2 3 4 5; do
    {command} "$@" >>{output} 2>&1
    status=$?
    [ -n "$export" ] && [ $status = 0 ] && [ ! -s "$export" ] || break
    echo "run $run exported nothing" >>{output}
    rm -f "$export"
done
echo "status $status" >>{output}
exit $status
"""
"""The script that genai-perf finds as `perf_analyzer`: it runs the real one, and again where that
exports an empty file with status 0, five times at most. The file is removed before: it takes none
that is there.

For an output that the server did not send, it takes a number from memory that nobody wrote. Where
that is NaN, as it always is when memory is filled with ones, its writer of JSON gives up.
"""

_LLM = "-m tiny_llm --synthetic-input-tokens-mean 20 --output-tokens-mean 16"
# All requests keep the bounds of the profile at a rate, none that of chats: goodput is known.
PROFILES: Mapping[str, str] = {
    "gRPC, decoupled": f"{_LLM} --backend vllm --streaming -u {{grpc}} --concurrency 2",
    "gRPC, decoupled, at a rate": f"{_LLM} --backend vllm --streaming -u {{grpc}} --request-rate 10"
    " --goodput time_to_first_token:60000 request_latency:60000",
    "generate": f"{_LLM} --endpoint-type generate -u {{http}} --concurrency 2",
    "chat": f"{_LLM} --endpoint-type chat --streaming -u {{http}} --concurrency 2"
    " --goodput request_latency:0.001",
    "completions": f"{_LLM} --endpoint-type completions --streaming -u {{http}} --concurrency 2",
    "embeddings": "-m minilm --endpoint-type embeddings -u {http} --concurrency 2"
    " --synthetic-input-tokens-mean 20",
}
"""Arguments of `genai-perf profile` for the demo, by what they show."""
TENSORS_OF_TRTLLM = "gRPC, decoupled, tensors of TensorRT-LLM"
_WITH_TRTLLM: Mapping[str, str] = {
    **PROFILES,
    TENSORS_OF_TRTLLM: f"{_LLM.replace('tiny_llm', 'tiny_trtllm')} --backend tensorrtllm"
    " --streaming -u {grpc} --concurrency 2 --output-tokens-mean-deterministic",
}

_TRTLLM = """\
backend: "tensorrt_llm_face"
model_transaction_policy { decoupled: true }
parameters { key: "tensorrt_llm_model_name" value { string_value: "tiny_llm" } }
"""


def write_trtllm(repository: Path) -> None:
    """A model, `tiny_trtllm`, with the tensors of TensorRT-LLM, which `tiny_llm` answers."""
    folder = repository / "tiny_trtllm"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(_TRTLLM)


@dataclass(frozen=True, slots=True)
class Profile:
    """Means of genai-perf's figures by their names, and 99th percentiles where it has them."""

    means: Mapping[str, float]
    p99s: Mapping[str, float]


def run_profile(
    name: str, addresses: Addresses, requests: int, folder: Path, prompts: Path | None = None
) -> Profile:
    """Run one profile; raises `ToolError` with what genai-perf printed.

    The lines of the file `prompts` are `{"text": ...}`. Without it genai-perf makes prompts up, for
    which it reads the whole of Shakespeare.
    """
    artifacts = folder / name.replace(", ", "-").replace(" ", "-")
    words = _WITH_TRTLLM[name].format(grpc=addresses.grpc, http=addresses.http).split()
    command = [program("genai-perf"), "profile", *words]
    command += ["--tokenizer", str(TOKENIZER), "--request-count", str(requests)]
    command += ["--num-dataset-entries", "10", "--artifact-dir", str(artifacts)]
    command += [f"--input-file={prompts}"] if prompts else []
    done = run_program(command, _TIMEOUT, _environment(folder))
    tables = list(artifacts.glob("*/*_genai_perf.csv"))
    if done.status or len(tables) != 1:
        raise ToolError(f"{done.printed[-3000:]}\n{_said(folder)}".rstrip())
    return _read(tables[0])


def _environment(folder: Path) -> dict[str, str]:
    """It runs the `perf_analyzer` of the path, a script of ours: `_PERF_ANALYZER`."""
    binary = Path(program("perf_analyzer")).resolve()
    script = folder / "bin" / "perf_analyzer"
    script.parent.mkdir(exist_ok=True)
    command = f"LD_LIBRARY_PATH={binary.parent / 'lib'} {binary}"
    script.write_text(_PERF_ANALYZER.format(command=command, output=folder / _OUTPUT))
    script.chmod(0o755)
    path = os.pathsep.join([str(script.parent), os.environ.get("PATH", "")])
    return {"PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}


def _said(folder: Path) -> str:
    """The last output of `perf_analyzer`, which genai-perf keeps for itself, and its status."""
    file = folder / _OUTPUT
    return file.read_text(errors="replace")[-2000:] if file.exists() else ""


def _read(table: Path) -> Profile:
    """Two tables in one file: of metrics with percentiles, and of single values."""
    means: dict[str, float] = {}
    p99s: dict[str, float] = {}
    heads: list[str] = []
    for row in csv.reader(table.read_text().splitlines()):
        if not row:
            continue
        if row[0] == "Metric":
            heads = row
            continue
        values = dict(zip(heads, row, strict=False))
        number = values.get("avg") or values.get("Value") or "nan"
        means[row[0]] = float(number.replace(",", ""))
        if "p99" in values:
            p99s[row[0]] = float(values["p99"].replace(",", ""))
    return Profile(means, p99s)


def main() -> None:
    """Run all profiles against a demo, and print their figures beside each other."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.tools.genai_perf")
    parser.add_argument("--requests", type=int, default=50, help="of each profile (50)")
    parser.add_argument("--json", type=results_file, help="where to write the table")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_demo(folder / "models", report=lambda line: None)
        write_trtllm(folder / "models")
        with penstock(folder / "models") as server:
            addresses = Addresses(server.target, f"127.0.0.1:{server.http_port}")
            found, faults = run_profiles(_WITH_TRTLLM, addresses, chosen.requests, folder)
    if found:
        show("genai-perf, means", _rows(found), chosen.json)
    sys.exit("\n".join(faults) or 0)


def run_profiles(
    names: Iterable[str], addresses: Addresses, requests: int, folder: Path
) -> tuple[dict[str, Profile], list[str]]:
    """Run profiles one after the other; a fault for each that failed."""
    found: dict[str, Profile] = {}
    faults: list[str] = []
    for name in names:
        try:
            found[name] = run_profile(name, addresses, requests, folder)
        except ToolError as error:
            faults.append(f"genai-perf: {name}: {error}")
    return found, faults


def _rows(found: Mapping[str, Profile]) -> list[Row]:
    """A row for each figure that some profile has."""
    names = dict.fromkeys(name for each in found.values() for name in each.means)
    return [
        {"figure": name, **{profile: each.means.get(name, "-") for profile, each in found.items()}}
        for name in names
    ]


if __name__ == "__main__":
    main()
