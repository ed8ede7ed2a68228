"""The lines with curl in the documentation, and the README's program, are answered as they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from harness.serving import Served, serving
from harness.snippets import PAGES, ROOT, lines, programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("curl", "" if which("curl") else "curl is not installed"),
]

ELSEWHERE = {
    "/models/english/": "tests/packaging/test_backend_page.py asks the backend of that page",
    "clip_image": "the demo has no image encoder; tests/backends/tensor_models ask one",
    "/adapters/": "an engine with adapters is needed; tests/backends/vllm ask it",
    "curl -s http://": "one's own file is served; tests/app/test_first_calls.py asks such lines",
    '"inputs":[...]': "it stands for any request",
    "/models/square/": "another server is needed; tests/backends/remote ask it",
    "/models/chat/": "another server is needed; tests/backends/remote ask it",
    '"model": "chat"': "another server is needed; tests/backends/remote ask it",
    "/models/ensemble/": "tests/backends/tensorrt_llm ask such a model",
    "localhost:30000": "a router is needed; `make router` asks one",
    "rollbacks_total": "no alias has gone back; tests/models/releases ask it",
}
"""What in a line keeps it from being run here, and why."""


LINES = [(page.name, line) for page in PAGES for line in lines(page, "curl")]


@pytest.fixture(scope="module")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo's models that lines name, and the class of the README."""
    folder = tmp_path_factory.mktemp("curl")
    (code,) = re.findall(
        r"```python\n(from penstock\.model.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_text(code)
    models = [f"--load-model={name}" for name in ("tiny_llm", "minilm", "reranker")]
    file = f"{folder / 'code' / 'model.py'}:Double"
    explicit = "--model-control-mode=explicit"
    with serving(demo_repository, folder / "log", explicit, *models, file) as server:
        yield server


def _reason(line: str) -> str:
    return next((reason for part, reason in ELSEWHERE.items() if part in line), "")


def test_lines_are_found() -> None:
    assert {"README.md", "http.md", "openai.md", "python-models.md", "backends.md"} <= {
        n for n, _ in LINES
    }
    assert [part for part in ELSEWHERE if not any(part in line for _, line in LINES)] == []


@pytest.mark.parametrize(
    ("page", "line"), [(page, line) for page, line in LINES if not _reason(line)]
)
def test_a_line_is_answered_as_the_page_says(page: str, line: str, served: Served) -> None:
    command, _, remark = line.partition("  # ")
    wanted = re.match(r"\s*(\d{3}) ", remark)
    command = command.replace("localhost:8000", served.http)
    assert served.http in command
    asked = ["bash", "-c", f"{command} -s -o /dev/null -w '%{{http_code}}'"]
    status = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout
    assert status == (wanted[1] if wanted else "200")


def test_the_program_that_streams_prints_what_is_generated(served: Served) -> None:
    code = next(programs(ROOT / "README.md")).replace("localhost:8001", served.grpc)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip()
