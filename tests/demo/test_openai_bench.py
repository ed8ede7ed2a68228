"""vLLM's own load tool against OpenAI's API of the demo's language model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from backends.vllm.test_real_engine import PYTHON, missing
from harness.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.needs("vLLM", missing())]

_ROOT = Path(__file__).parents[2]
_BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` runs; that command needs a distribution of the name `vllm`."""


@pytest.mark.parametrize(
    ("backend", "endpoint"),
    [("openai-chat", "/v1/chat/completions"), ("openai", "/v1/completions")],
)
def test_every_request_of_the_tool_succeeds(
    demo_repository: Path, tmp_path: Path, backend: str, endpoint: str
) -> None:
    explicit = ("--model-control-mode=explicit", "--load-model=tiny_llm")
    with serving(demo_repository, tmp_path / "log", *explicit) as served:
        done = subprocess.run(
            [
                *(PYTHON, "-c", _BENCH, "--save-result", f"--result-dir={tmp_path}"),
                *("--result-filename=result.json", f"--base-url=http://{served.http}"),
                *(f"--backend={backend}", f"--endpoint={endpoint}", "--model=tiny_llm"),
                f"--tokenizer={_ROOT / 'service/penstock/demo/assets/tiny_llm'}",
                *("--dataset-name=random", "--random-input-len=32", "--random-output-len=16"),
                "--num-prompts=20",
            ],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["completed"], told["failed"]) == (20, 0)
    assert told["total_output_tokens"] > 20
