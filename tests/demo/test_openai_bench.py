"""vLLM's own load tool against OpenAI's API of the demo's language model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from backends.vllm.test_real_engine import PYTHON, missing
from harness.serving import Served

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm", missing())]

_ROOT = Path(__file__).parents[2]
_ENDPOINTS = {"openai-chat": "/v1/chat/completions", "openai": "/v1/completions"}
_BENCH = """
import sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
add_cli_args(parser)
for asked in sys.argv[1:]:
    main(parser.parse_args(asked.split()))
"""
"""What `vllm bench serve` runs, for several lines of arguments, since it imports for ten seconds;
that command needs a distribution of the name `vllm`."""


@pytest.fixture(scope="module")
def results(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the tool has found, in a file for each backend of it."""
    folder = tmp_path_factory.mktemp("bench")
    done = subprocess.run(
        [PYTHON, "-c", _BENCH, *(_line(served, backend) for backend in _ENDPOINTS)],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _line(served: Served, backend: str) -> str:
    return (
        f"--save-result --result-dir=. --result-filename={backend}.json"
        f" --base-url=http://{served.http} --backend={backend} --endpoint={_ENDPOINTS[backend]}"
        f" --model=tiny_llm --tokenizer={_ROOT}/service/penstock/demo/assets/tiny_llm"
        " --dataset-name=random --random-input-len=32 --random-output-len=16 --num-prompts=20"
    )


@pytest.mark.parametrize("backend", _ENDPOINTS)
def test_every_request_of_the_tool_succeeds(results: Path, backend: str) -> None:
    told = json.loads((results / f"{backend}.json").read_text())
    assert (told["completed"], told["failed"]) == (20, 0)
    assert told["total_output_tokens"] > 20
