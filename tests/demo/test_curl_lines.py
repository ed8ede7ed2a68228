"""The lines with curl in the documentation are answered as they say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from harness.serving import Served, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("curl", "" if which("curl") else "curl is not installed"),
]

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"```(?:sh|console|bash)\n(.*?)```", re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
_COMMAND = re.compile(r"^\s*(?:\$ )?(curl (?:.*\\\n)*.*)$", re.MULTILINE)

ELSEWHERE = {
    "/models/english/": "tests/packaging/test_backend_page.py asks the backend of that page",
    "/adapters/": "an engine with adapters is needed; tests/backends/vllm ask it",
    '"inputs":[...]': "it stands for any request",
}
"""What in a line keeps it from being run here, and why."""


def _lines(page: Path) -> Iterator[str]:
    text = page.read_text()
    for block in (*_FENCED.findall(text), *_INDENTED.findall(_FENCED.sub("", text))):
        yield from (line.replace("\\\n", " ") for line in _COMMAND.findall(block))


LINES = [(page.name, line) for page in _PAGES for line in _lines(page)]


@pytest.fixture(scope="module")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo's models that lines name, and the class of the README."""
    folder = tmp_path_factory.mktemp("curl")
    (code,) = re.findall(
        r"```python\n(from penstock\.model.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL
    )
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_text(code)
    models = ("--load-model=tiny_llm", "--load-model=minilm")
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
